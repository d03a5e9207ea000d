package parser

import "testing"

const tablePage = `<table id="cols"><thead><tr><td>Model</td><td>Price:</td><td colspan="2">Sizes</td></tr></thead>
<tr><td>A</td><td>10</td><td>s</td><td>m</td></tr><tr><th scope="row">B</th><td rowspan="2">20</td><td>l</td><td>xl</td></tr><tr><td>C</td><td></td></tr>
<tr><th>Model</th><th>Weight</th></tr><tr><td>D</td><td>5 kg</td></tr></table>
<table id="pairs"><tr><th>Brand </th><td>Acme</td><th>colour</th><td>blue</td></tr><tr><th rowspan=2>Ports</th><td>USB</td></tr><tr><td>HDMI</td></tr><tr><th>Empty</th><td></td></tr>
<tr><th>Deep</th><td><table><tr><th>Inner</th><td>in</td></tr></table></td></tr></table>
<table id="corner"><tr><td></td><th>Q1</th><th>Q2</th></tr><tr><th>North</th><td>1</td><td>2</td></tr></table>
<dl><dt>Made in</dt><dd>Oslo</dd><dt>Width</dt><dt>Depth</dt><dd>3</dd><dd>4</dd><div><dt>Height</dt><dd>9</dd></div></dl>
<table id="plain"><tr><td>Head</td></tr><tr><td>cell</td></tr></table>`

func TestTable(t *testing.T) {
	for header, want := range map[string]string{
		"Price":   `["10","20"]`,
		" PRICE:": `["10","20"]`,
		"model":   `["A","B","C","D"]`,
		"Sizes":   `["s","m","l","xl",""]`,
		"Weight":  `["5 kg"]`,
		"Brand":   `["Acme"]`,
		"Colour":  `["blue"]`,
		"ports":   `["USB","HDMI"]`,
		"Empty":   `[""]`,
		"Inner":   `["in"]`,
		"Q2":      `["2"]`,
		"North":   `["1","2"]`,
		"Made in": `["Oslo"]`,
		"Width":   `["3","4"]`,
		"Depth":   `["3","4"]`,
		"Height":  `["9"]`,
		"Head":    `[]?`,
		"Pri":     `[]?`,
	} {
		got := parseField(t, Input{Body: []byte(tablePage), Target: "1"}, Field{Rule: Rule{Table: header}, Many: true})
		if got != want {
			t.Errorf("%s gives %s, want %s", header, got, want)
		}
	}
}

// TestTableOfRows: a row that is a <tr> has the cells of its own under the
// headers of the table.
func TestTableOfRows(t *testing.T) {
	rules := mustCompile(t, Spec{Rows: &Rule{CSS: "#cols tr:has(td:nth-child(2))"}, Key: "{n}", Empty: "accept", Fields: []Field{
		{Name: "n", Rule: Rule{Table: "Model"}}, {Name: "price", Rule: Rule{Table: "Price"}}, {Name: "sizes", Rule: Rule{Table: "sizes"}, Many: true},
	}})
	out, err := rules.Parse(Input{Body: []byte(tablePage)[len(`<table id="cols">`):], Target: "1"})
	if err != nil || len(out.Records) != 0 {
		t.Errorf("rows without a table are %s, %v", out.text(), err)
	}
	rules = mustCompile(t, Spec{Rows: &Rule{CSS: "#cols tbody tr:not(:has(th + th))"}, Key: "{n}", Fields: []Field{
		{Name: "n", Rule: Rule{Table: "Model"}}, {Name: "price", Rule: Rule{Table: "Price"}}, {Name: "sizes", Rule: Rule{Table: "sizes"}, Many: true},
	}})
	out, err = rules.Parse(Input{Body: []byte(tablePage), Target: "1"})
	want := "A\tnull\n{\"n\":\"A\",\"price\":\"10\",\"sizes\":[\"s\",\"m\"]}\nB\tnull\n{\"n\":\"B\",\"price\":\"20\",\"sizes\":[\"l\",\"xl\"]}\n" +
		"C\tnull\n{\"n\":\"C\",\"price\":\"20\",\"sizes\":[\"\"]}\nD\t[\"price\",\"sizes\"]\n{\"n\":\"D\",\"price\":null,\"sizes\":[]}\n"
	if err != nil || out.text() != want {
		t.Errorf("rows are %v\n%swant\n%s", err, out.text(), want)
	}
}
