// Command semel collects public web pages so that each logical observation
// exists once.
package main

import (
	"io"
	"log"
	"os"

	"semel/engine/cli"
)

func main() {
	// Only net/http writes there, about connections whose attempts tell of
	// their own troubles.
	log.SetOutput(io.Discard)
	os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
