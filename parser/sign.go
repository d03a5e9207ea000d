package parser

// Selector is a compiled CSS selector, for asking whether a page holds
// something. It is immutable and safe for concurrent use.
type Selector struct {
	text     string
	selector selector
}

// CompileSelector compiles a CSS selector.
func CompileSelector(css string) (*Selector, error) {
	compiled, err := compileCSS(css, "")
	if err != nil {
		return nil, err
	}
	return &Selector{css, compiled}, nil
}

// String is the selector as it was written.
func (s *Selector) String() string { return s.text }

// Matches reports whether an element of a page matches. It parses the page as
// HTML; one that cannot be parsed has no elements.
func (s *Selector) Matches(body []byte) bool {
	_, found, err := findFirst(s.selector, &scope{page: &page{in: Input{Body: body}}})
	return found && err == nil
}
