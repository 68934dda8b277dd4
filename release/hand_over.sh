# postinst and install.sh have this in place of the line that names it.

main_pid() { systemctl show --property=MainPID --value "$1"; }

# The successor of service $1 takes over when it serves, so calls in flight end where they began.
hand_over() {
    old=$(main_pid "$1")
    systemctl kill --signal=USR2 --kill-whom=main "$1" || return 1
    waited=0
    while [ "$(main_pid "$1")" = "$old" ]; do
        if [ "$waited" -ge 65 ]; then return 1; fi  # the proxy itself gives up after 60 s
        waited=$((waited + 1))
        sleep 1
    done
}
