package cli

import (
	"errors"
	"fmt"
	"text/tabwriter"
)

// tablePage is how many rows of a table are held back to align their columns:
// memory must not grow with the list.
const tablePage = 1000

// list prints each item that find comes to: as a row below a head, in columns that
// tabs part, or with --json as a line.
func list[T any](a *app, head string, row func(T) string, find func(show func(T) error) error) error {
	if a.json {
		return find(func(item T) error { return a.line(item) })
	}
	table := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	rows := 0
	err := find(func(item T) error {
		if rows == 0 {
			fmt.Fprintln(table, head)
		}
		fmt.Fprintln(table, row(item))
		if rows++; rows%tablePage == 0 {
			return table.Flush()
		}
		return nil
	})
	return errors.Join(err, table.Flush())
}
