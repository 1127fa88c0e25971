// Command etcd is the stock etcd server; `go install` of it is refused because its own module has replace directives.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
