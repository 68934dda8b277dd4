// Command etcd is the etcd server under its usual name, which its own module's root package would not get.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() {
	etcdmain.Main(os.Args)
}
