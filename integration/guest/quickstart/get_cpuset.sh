#!/bin/bash
# Prints the CPU set of a pod's first container: get_cpuset.sh POD [NAMESPACE]
#
# By the paths of the guide to CPU orchestration: systemd's cgroup driver, cgroup v2, containerd. Where the quick start's path of
# Guaranteed pods cannot be, this has kubelet's.
set -euo pipefail

pod=${1:?"usage: $0 POD [NAMESPACE]"}
namespace=${2-default}

fields='{.metadata.uid} {.status.qosClass} {.status.containerStatuses[0].containerID}'
read -r uid qos container < <(kubectl get pod "$pod" -n "$namespace" -o jsonpath="$fields"; echo)
uid=${uid//-/_}

case "$qos" in
    Guaranteed) slice="kubepods-pod$uid.slice" ;;
    Burstable) slice="kubepods-burstable.slice/kubepods-burstable-pod$uid.slice" ;;
    BestEffort) slice="kubepods-besteffort.slice/kubepods-besteffort-pod$uid.slice" ;;
    *) echo "pod $namespace/$pod has no QoS class that is known: '$qos'" >&2; exit 1 ;;
esac

directory="/sys/fs/cgroup/kubepods.slice/$slice/cri-containerd-${container#containerd://}.scope"
echo "CPU set for Pod $pod ($qos QoS): $(cat "$directory/cpuset.cpus")"
