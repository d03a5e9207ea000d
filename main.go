// Command semel collects public web pages so that each logical observation
// exists once.
package main

import (
	"os"

	"semel/engine/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }
