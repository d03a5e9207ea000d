package parser

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// tableSelector finds the cells that a header of a table is over or before, and
// the descriptions of a term. In a row that is a table's <tr> it finds that
// row's cells, under the headers of the whole table.
type tableSelector struct{ header string }

func compileTable(text string) (selector, error) {
	header := headerText(text)
	if header == "" {
		return nil, errors.New("must be the text of a header")
	}
	return &tableSelector{header}, nil
}

// headerText is a header as tables are searched for it: folded, in lower case,
// without the colon that stands behind some.
func headerText(s string) string {
	return strings.TrimSpace(strings.TrimSuffix(strings.ToLower(fold(s)), ":"))
}

func (t *tableSelector) find(s *scope, yield func(match) bool) error {
	top, err := s.element()
	if err != nil {
		return err
	}
	each := func(cells []*html.Node) bool {
		for _, n := range cells {
			if !yield(match{node: n}) {
				return false
			}
		}
		return true
	}
	if top.DataAtom == atom.Tr {
		h, err := s.page.headed(tableOf(top), t.header)
		if err == nil {
			each(h.inRow[top])
		}
		return err
	}
	var inner error
	look := func(n *html.Node) bool {
		switch n.DataAtom {
		case atom.Table:
			var h *headed
			h, inner = s.page.headed(n, t.header)
			return inner == nil && each(h.cells)
		case atom.Dl:
			return each(described(n, t.header))
		}
		return true
	}
	if look(top) {
		err = s.page.walk(top, false, look)
	}
	return cmp.Or(inner, err)
}

// tableOf is the table that a row is of; the row itself where a page has rows
// without one, which then has no cells of headers.
func tableOf(row *html.Node) *html.Node {
	for n := row; n != nil; n = n.Parent {
		if n.DataAtom == atom.Table {
			return n
		}
	}
	return row
}

// headed are the cells of one header in one table.
type headed struct {
	cells []*html.Node                // in page order
	inRow map[*html.Node][]*html.Node // by each <tr> that they reach over
}

// headedKey names a headed of a page.
type headedKey struct {
	table  *html.Node
	header string
}

// headed finds a header's cells once for all rows of the table.
func (p *page) headed(table *html.Node, header string) (*headed, error) {
	key := headedKey{table, header}
	if h := p.tables[key]; h != nil {
		return h, nil
	}
	h := &headed{inRow: make(map[*html.Node][]*html.Node)}
	g, err := p.layOut(table)
	if err != nil {
		return nil, err
	}
	if err := g.headed(header, h); err != nil {
		return nil, err
	}
	if p.tables == nil {
		p.tables = make(map[headedKey]*headed)
	}
	p.tables[key] = h
	return h, nil
}

// grid is a table's rows of cells, with the columns that they have.
type grid struct {
	page  *page
	rows  []*html.Node
	cells [][]tableCell
}

// tableCell is a cell that reaches over columns from column to end, and over
// height rows.
type tableCell struct {
	node                *html.Node
	column, end, height int
	heads               direction
}

// direction is where the cells are that a header is of.
type direction int

const (
	noHeader direction = iota
	headsColumn
	headsRow
)

// layOut places the cells of a table as browsers do.
func (p *page) layOut(table *html.Node) (*grid, error) {
	g := &grid{page: p}
	var err error
	var taken []int // by column, how many rows from here on a cell above reaches over
	for part := range table.ChildNodes() {
		switch part.DataAtom {
		case atom.Thead, atom.Tbody, atom.Tfoot:
			for row := range part.ChildNodes() {
				if row.DataAtom != atom.Tr {
					continue
				}
				if taken, err = g.addRow(row, part.DataAtom == atom.Thead, taken); err != nil {
					return nil, err
				}
			}
		}
	}
	return g, nil
}

func (g *grid) addRow(row *html.Node, head bool, taken []int) ([]int, error) {
	var cells []tableCell
	column := 0
	for n := range row.ChildNodes() {
		if n.DataAtom != atom.Td && n.DataAtom != atom.Th {
			continue
		}
		for column < len(taken) && taken[column] > 0 {
			column++
		}
		if column >= maxColumns {
			return nil, unreadable("a table has more than %d columns", maxColumns)
		}
		c := tableCell{n, column, column + span(n, "colspan"), span(n, "rowspan"), heads(n, head)}
		for ; column < c.end; column++ {
			if column == len(taken) {
				taken = append(taken, 0)
			}
			taken[column] = c.height
		}
		cells = append(cells, c)
	}
	for i := range taken {
		taken[i] = max(0, taken[i]-1)
	}
	g.rows, g.cells = append(g.rows, row), append(g.cells, cells)
	return taken, g.page.spend(len(taken))
}

// span is how many columns or rows a cell says it reaches over. No table has
// more than some dozen; HTML itself stops at 1000 columns.
func span(n *html.Node, name string) int {
	text, _ := attribute(n, name)
	count, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil {
		return 1
	}
	return min(max(count, 1), 1000)
}

// heads says what a cell is the header of. A <th> that says nothing itself is
// of its row where a <td> follows it, and else of its column.
func heads(n *html.Node, head bool) direction {
	scope, _ := attribute(n, "scope")
	scope = strings.ToLower(strings.TrimSpace(scope))
	switch {
	case head:
		return headsColumn
	case n.DataAtom != atom.Th:
		return noHeader
	case strings.HasPrefix(scope, "col"):
		return headsColumn
	case strings.HasPrefix(scope, "row"):
		return headsRow
	}
	for next := n.NextSibling; next != nil; next = next.NextSibling {
		if next.Type == html.ElementNode {
			if next.DataAtom == atom.Td {
				return headsRow
			}
			break
		}
	}
	return headsColumn
}

// headed adds the cells of a header to h.
func (g *grid) headed(header string, h *headed) error {
	for i, cells := range g.cells {
		for _, c := range cells {
			if c.heads == noHeader || headerText(nodeText(c.node)) != header {
				continue
			}
			add := g.below
			if c.heads == headsRow {
				add = g.besides
			}
			if err := add(i, c, h); err != nil {
				return err
			}
		}
	}
	return nil
}

// besides adds the cells behind a row's header, up to the next one.
func (g *grid) besides(row int, header tableCell, h *headed) error {
	for i := row; i < min(row+header.height, len(g.rows)); i++ {
		for _, c := range g.cells[i] {
			if c.column < header.end {
				continue
			}
			if c.heads != noHeader {
				break
			}
			if err := g.add(h, i, c); err != nil {
				return err
			}
		}
	}
	return nil
}

// below adds the cells below a column's header, down to the next one. A row's
// header is one of them.
func (g *grid) below(row int, header tableCell, h *headed) error {
	for i := row + header.height; i < len(g.rows); i++ {
		for _, c := range g.cells[i] {
			if c.end <= header.column || c.column >= header.end {
				continue
			}
			if c.heads == headsColumn {
				return nil
			}
			if err := g.add(h, i, c); err != nil {
				return err
			}
		}
		if err := g.page.spend(len(g.cells[i])); err != nil {
			return err
		}
	}
	return nil
}

func (g *grid) add(h *headed, row int, c tableCell) error {
	h.cells = append(h.cells, c.node)
	end := min(row+c.height, len(g.rows))
	for i := row; i < end; i++ {
		h.inRow[g.rows[i]] = append(h.inRow[g.rows[i]], c.node)
	}
	return g.page.spend(end - row)
}

// described are the descriptions of a term in a <dl>, whose groups may stand in
// a <div> each.
func described(list *html.Node, term string) []*html.Node {
	var found []*html.Node
	matches, described := false, true // the last group's terms, and whether it has a description yet
	for _, n := range groupsOf(list) {
		switch n.DataAtom {
		case atom.Dt:
			matches = matches && !described || headerText(nodeText(n)) == term
			described = false
		case atom.Dd:
			described = true
			if matches {
				found = append(found, n)
			}
		}
	}
	return found
}

// groupsOf are the elements of a <dl>, those in a <div> too.
func groupsOf(list *html.Node) []*html.Node {
	var elements []*html.Node
	for n := range list.ChildNodes() {
		if n.DataAtom == atom.Div {
			elements = slices.AppendSeq(elements, n.ChildNodes())
		} else {
			elements = append(elements, n)
		}
	}
	return elements
}
