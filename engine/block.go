package engine

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"semel/engine/fetch"
	"semel/parser"
)

// BlockRules are a source's own signs of a block page, beside those that are
// built in. A page with one of them is a failure, whatever its status.
type BlockRules struct {
	Status []int            // of the answer
	Text   []*regexp.Regexp // matched with the decoded page
	CSS    *parser.Selector // of an element of an HTML page; nil: none
}

// blockSign names the source's own rule that tells a page for a block page; "":
// none does. What costs least is asked first. A page is parsed for CSS alone,
// and in its turn, as the rules' own parsing is.
func (a *attempt) blockSign(ctx context.Context, p *fetch.Page) string {
	rules := a.src.Blocked
	if slices.Contains(rules.Status, p.Status) {
		return fmt.Sprintf("blocked.status has %d", p.Status)
	}
	for _, text := range rules.Text {
		if found := text.Find(p.Body); found != nil {
			return fmt.Sprintf("blocked.text has %q", found)
		}
	}
	if rules.CSS == nil || !isHTML(p.ContentType) {
		return ""
	}
	if a.engine.parsing.take(ctx) { // where no time is left it looks all the same: no block page may pass
		defer a.engine.parsing.free()
	}
	if rules.CSS.Matches(p.Body) {
		return fmt.Sprintf("blocked.css %q matches", rules.CSS)
	}
	return ""
}

// isHTML reports whether a page of a type may hold elements; "" may.
func isHTML(contentType string) bool {
	return contentType == "" || strings.HasSuffix(contentType, "html") || strings.HasSuffix(contentType, "xhtml+xml")
}
