package parser

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// FuzzLinkedData: no block of JSON-LD brings down the reader, and one that is
// JSON is read as it stands, without mending.
func FuzzLinkedData(f *testing.F) {
	for _, s := range []string{
		`{"@graph":[{"@type":["Product"],"offers":[{"price":1}]}]}`, "<!-- {\"a\":\"b\nc\"} -->", "//<![CDATA[\n[1];\n//]]>", `{"a":`, "",
	} {
		f.Add(s)
	}
	rules := mustCompile(f, Spec{Fields: []Field{
		{Name: "a", Rule: Rule{JSONLD: "offers.price", Schema: "Product"}, Many: true, Type: "object"},
		{Name: "b", Rule: Rule{JSONLD: "a"}, Type: "object"},
	}})
	f.Fuzz(func(t *testing.T, block string) {
		var ld linkedData
		ld.add(block)
		if ld.broken > 0 && json.Valid([]byte(block)) && !strings.Contains(block, strings.Repeat("[", 50)) && !strings.Contains(block, strings.Repeat(`{"":`, 50)) {
			t.Fatalf("%q is JSON, and counted as broken", block)
		}
		out, err := rules.Parse(Input{Body: []byte(`<script type="application/ld+json">` + block + "</script>"), Target: "1"})
		if err != nil && strings.Contains(err.Error(), "panicked") || err == nil && !json.Valid(out.Records[0].Data) {
			t.Fatalf("%q gives %v, %s", block, err, out.text())
		}
	})
}

// FuzzJSON: a page is read as JSON where it is, and what a rule gives of it is
// the same value, whose own reading changes nothing more.
func FuzzJSON(f *testing.F) {
	for _, s := range []string{
		shopJSON, `{"b":1e999999999,"a":[1.50,-0,"\ud800"],"b":null}`, "\uFEFF[]", "[1] 2", strings.Repeat("[", 1100), "1" + strings.Repeat("0", 500), `{"a":"\u0000é"}`, "tru",
	} {
		f.Add([]byte(s))
	}
	rules := mustCompile(f, Spec{Fields: []Field{
		{Name: "all", Rule: Rule{JSON: "."}, Type: "object"},
		{Name: "types", Rule: Rule{JSON: "[.. | type]"}, Type: "object"},
	}})
	number := mustCompile(f, oneField(Field{Rule: Rule{JSON: "first(.. | numbers)"}, Type: "decimal"}))
	f.Fuzz(func(t *testing.T, body []byte) {
		text := bytes.TrimPrefix(body, []byte("\uFEFF"))
		out, err := rules.Parse(Input{Body: body, Target: "1"})
		if (err == nil) != json.Valid(text) && !bytes.Contains(text, []byte("[[[")) && !bytes.Contains(text, []byte(":{")) {
			t.Fatalf("%q gives %v", body, err)
		}
		if _, err := number.Parse(Input{Body: body, Target: "1"}); err != nil && strings.Contains(err.Error(), "panicked") {
			t.Fatalf("%q gives %v", body, err)
		}
		if err != nil {
			return
		}
		v, err := decodeJSON(out.Records[0].Data)
		if err != nil {
			t.Fatalf("%q gives %s, %v", body, out.Records[0].Data, err)
		}
		if again, err := compactJSON(v); err != nil || again != string(out.Records[0].Data) {
			t.Fatalf("%q gives %s, and that %s, %v", body, out.Records[0].Data, again, err)
		}
	})
}

// FuzzEmbedded: the JSON value that a text begins with ends where it ends
// itself, so that what follows changes nothing.
func FuzzEmbedded(f *testing.F) {
	for _, s := range []string{`{"a":"};"}`, "1 2", ` [1,{"b":null}];x`, `"open`, "", "\u00a0{}", "1e5x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		doc := new(page).jsonIn(embeddedKey{}, text)
		if doc.err != nil {
			return
		}
		if doc.end < 1 || doc.end > len(text) || !json.Valid([]byte(text[:doc.end])) {
			t.Fatalf("%q holds a value up to %d", text, doc.end)
		}
		want, _ := compactJSON(doc.value)
		again := new(page).jsonIn(embeddedKey{}, text[:doc.end])
		if got, err := compactJSON(again.value); err != nil || again.err != nil || got != want {
			t.Fatalf("%q is %s, and cut at its end %s, %v", text, want, got, again.err)
		}
	})
}

// FuzzDates: a date is in the form of records whatever stands on the page, and
// written out in English it reads as the same day; an instant is in UTC and
// reads as itself.
func FuzzDates(f *testing.F) {
	for _, s := range []string{"Sa., 10. Dez. 2022", "3. Ma\u0308rz 2022", "mar, 3 mar 2020", "Dez Dez Dez", "2022-12-10", "--", "Mai-Mai 1 2 3"} {
		f.Add(s, "de")
		f.Add(s, "es")
	}
	f.Add("2026-04-23 15:04:05.120+0200", "")
	f.Add("29. Mai 2026 02:30", "de")
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text, language string) {
		for _, layout := range []string{"", "2006-01-02 15:04", "2. Jan 2006 15:04 MST"} {
			got, err := readTimestamp(text, layout, berlin)
			if err != nil {
				continue
			}
			if again, err := readTimestamp(got, "", nil); err != nil || again != got || !strings.HasSuffix(got, "Z") {
				t.Fatalf("%q gives the instant %q, which reads as %q, %v", text, got, again, err)
			}
		}
		for _, layout := range []string{"Mon, 2. Jan. 2006", "2. January 2006", "2 de January de 2006"} {
			fd := Field{Rule: Rule{Const: text}, Type: "date", Layout: layout, Language: language}
			rules, err := Compile(oneField(fd))
			if err != nil {
				return
			}
			out, err := rules.Parse(Input{Target: "1"})
			if err != nil {
				continue
			}
			day := strings.TrimSuffix(strings.TrimPrefix(string(out.Records[0].Data), `{"x":"`), `"}`)
			when, err := time.Parse(isoDate, day)
			if err != nil {
				t.Fatalf("%q gives the date %q", text, day)
			}
			english, _ := inEnglish(layout)
			if again, err := readDate(when.Format(english), english); err != nil || again != day {
				t.Fatalf("%q gives %s, which reads as %s, %v", text, day, again, err)
			}
		}
	})
}

// FuzzAmounts: an amount is a number in normal form in a currency of three
// letters, the same with and without what it names itself.
func FuzzAmounts(f *testing.F) {
	for _, s := range []string{"10–20 €", "19,- – 25,-", "$5", "CHF 1’020.00", "-5 - -3", "1-2-3", "€5 USD", "\u200f5 kr."} {
		f.Add(s, "min")
		f.Add(s, "")
	}
	f.Fuzz(func(t *testing.T, text, pick string) {
		fd := &field{decimal: ",", pick: pick, money: true}
		got, err := convertMoney(fd, nil, readTextOf(text))
		if err != nil {
			return
		}
		number, code, _ := strings.Cut(got, " ")
		if again, err := readLiteral(number); err != nil || again != number || len(code) != 3 {
			t.Fatalf("%q is %q, %v", text, got, err)
		}
		fd.currency = code
		if in, err := convertMoney(fd, nil, readTextOf(text)); err != nil || in != number {
			t.Fatalf("%q is %q, but in %s %q, %v", text, got, code, in, err)
		}
	})
}

func readTextOf(s string) text { return text{s: fold(s)} }
