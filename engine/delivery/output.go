package delivery

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"
)

// What of a command's output is kept: enough for a stack trace, and too little
// for a log to be filled by a command gone wild.
const (
	maxOutput     = 64 << 10 // bytes that are printed
	maxOutputLine = 1 << 10  // bytes of a line
)

// outputLog is one stream of a command's output. It takes all there is, so that
// the command need not wait.
type outputLog struct {
	print   func(line string)
	line    []byte // the beginning of the line at hand
	last    string // the last line that was not blank
	printed int    // bytes
	left    int    // lines that were not printed
}

// Write never fails.
func (o *outputLog) Write(b []byte) (int, error) {
	n := len(b)
	for {
		part, rest, ended := bytes.Cut(b, []byte{'\n'})
		o.line = append(o.line, part[:min(len(part), maxOutputLine-len(o.line))]...)
		if !ended {
			return n, nil
		}
		o.endLine()
		b = rest
	}
}

func (o *outputLog) endLine() {
	text := strings.TrimRight(printable(o.line), " ")
	o.line = o.line[:0]
	if text == "" {
		return
	}
	o.last = text
	if o.printed += len(text); o.printed > maxOutput {
		o.left++
		return
	}
	o.print(text)
}

// end prints the line that has no end, and how much was not printed.
func (o *outputLog) end() {
	o.endLine()
	if o.left > 0 {
		o.print(fmt.Sprintf("… and %d lines more", o.left))
	}
}

// printable takes out of a text what a terminal would obey.
func printable(text []byte) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case unicode.IsPrint(r):
			return r
		}
		return unicode.ReplacementChar
	}, string(text))
}
