package config

import (
	"regexp"

	"semel/parser"
)

// blocked reads a source's own signs of a block page.
func (l *loader) blocked(t *table, to *Blocked) {
	l.statuses(t.get("status"), &to.Status)
	var texts []string
	if t.texts("text", &texts) {
		for i, text := range texts {
			if text == "" {
				l.fault(t.get("text").items[i], "must not be empty: every page holds that")
			}
			to.Text = append(to.Text, regexp.MustCompile("(?i)"+regexp.QuoteMeta(text)))
		}
	}
	var css string
	if t.text("css", &css) && css != "" {
		var err error
		if to.CSS, err = parser.CompileSelector(css); err != nil {
			l.wrong(t.get("css"), "%v", err)
		}
	}
	t.done()
}

// statuses reads a list of HTTP status codes.
func (l *loader) statuses(n *node, to *[]int) {
	if n == nil {
		return
	}
	if n.items == nil {
		l.wrong(n, "must be a list of status codes")
		return
	}
	for _, item := range n.items {
		status, ok := item.scalar.(int64)
		if !ok || status < 100 || status > 599 {
			l.wrong(item, "must be a status code from 100 to 599")
			continue
		}
		*to = append(*to, int(status))
	}
}
