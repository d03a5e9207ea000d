package api

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"semel/engine/config"
	"semel/engine/cron"
	"semel/engine/intake"
	"semel/parser"
	"semel/storage"
)

// aRow is an observation of source shop; windows are hours of a day.
func aRow(target, scope string, hour, version int, data string) *storage.Observation {
	window := time.Date(2026, 4, 23, hour, 0, 0, 0, time.UTC)
	return &storage.Observation{
		Key:    storage.JobKey{Source: "shop", Target: target, Scope: scope, Window: window, Version: version},
		Window: window, Version: version, Revision: 1, Data: []byte(data), Gone: data == "",
	}
}

// written are the lines that an exporter makes of rows, given in pages.
func written(t *testing.T, x *exporter, pages ...[]*storage.Observation) string {
	t.Helper()
	for _, page := range pages {
		for _, o := range page {
			if err := x.row(o); err != nil {
				t.Fatal(err)
			}
		}
		if err := x.endPage(); err != nil {
			t.Fatal(err)
		}
	}
	return string(x.buf)
}

func exporterFor(t *testing.T, l *Local, r ExportRequest) *exporter {
	t.Helper()
	x, err := l.newExporter(r)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func TestExportWindowAndLatest(t *testing.T) {
	pages := [][]*storage.Observation{{
		aRow("a", "", 1, 1, `{"v":1}`), aRow("a", "", 2, 1, `{"v":2}`), aRow("a", "", 2, 3, `{"v":3}`),
		aRow("b", "x", 1, 1, `{"v":4}`), aRow("b", "y", 1, 1, `{"v":5}`), aRow("b", "x", 2, 1, `{"v":6}`),
	}, {
		aRow("c", "", 1, 1, `{"v":7}`), aRow("c", "", 3, 1, ``),
		{Key: storage.JobKey{Source: "shop", Target: "d"}, Data: []byte(`{"v":8}`)}, // without a window
	}}
	hourly, err := cron.Parse("@hourly", time.UTC)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		window   string
		latest   bool
		schedule *cron.Schedule
		want     string // values
	}{
		"all":                                  {"", false, nil, "1 2 3 4 5 6 7 8"},
		"latest: one a key and scope":          {"", true, nil, "3 5 6 8"},
		"a day":                                {"2026-04-23", false, nil, "1 2 3 4 5 6 7"},
		"another day":                          {"2026-04-24", false, nil, ""},
		"the first is in it, the end is not":   {"2026-04-23T01:00:00Z..2026-04-23T02:00:00Z", false, nil, "1 4 5 7"},
		"an instant":                           {"2026-04-23T02:00:00Z", false, nil, "2 3 6"},
		"an instant between":                   {"2026-04-23T02:30:00Z", false, nil, ""},
		"an instant within a tick's window":    {"2026-04-23T02:30:00Z", false, hourly, "2 3 6"},
		"the latest of a window":               {"2026-04-23T00:00:00Z..2026-04-23T02:00:00Z", true, nil, "1 4 5 7"},
		"the latest of a window, gone by then": {"2026-04-23T00:00:00Z..2026-04-23T04:00:00Z", true, nil, "3 5 6"},
	} {
		t.Run(name, func(t *testing.T) {
			l := local(t)
			l.Config.Sources[0].Schedule = c.schedule
			x := exporterFor(t, l, ExportRequest{Source: "shop", Window: c.window, Latest: c.latest, DataOnly: true})
			got := strings.NewReplacer(`{"v":`, "", "}\n", " ").Replace(written(t, x, pages...))
			if strings.TrimSpace(got) != c.want {
				t.Errorf("rows %s, want %s", got, c.want)
			}
			if n := len(strings.Fields(c.want)); x.result.Rows != n {
				t.Errorf("counted %d rows of %d", x.result.Rows, n)
			}
		})
	}
}

func tableRules(t *testing.T, fields ...parser.Field) *parser.Rules {
	t.Helper()
	for i := range fields {
		fields[i].CSS = "p"
	}
	rules, err := parser.Compile(parser.Spec{Fields: fields})
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

func TestExportTable(t *testing.T) {
	price := parser.Field{Name: "price", Type: "money", Currency: "USD", Decimal: "."}
	rules := tableRules(t, parser.Field{Name: "sku"}, price, parser.Field{Name: "n", Type: "integer", Decimal: "."})
	for name, c := range map[string]struct {
		data string
		want string
		lost []string
	}{
		"all":                 {`{"sku":"1","price":{"amount":"1.50","currency":"USD"},"n":12345678901234567890}`, "1,1.50,USD,12345678901234567890", nil},
		"null":                {`{"sku":null,"price":null,"n":null}`, ",,,", nil},
		"empty":               {`{"sku":"","price":null,"n":0}`, ",,,0", nil},
		"missing":             {`{}`, ",,,", nil},
		"formula":             {`{"sku":"=1+1"}`, "=1+1,,,", nil},
		"quotes":              {`{"sku":"a \"b\", c"}`, `"a ""b"", c",,,`, nil},
		"lines":               {`{"sku":"a\r\nb"}`, "\"a\r\nb\",,,", nil},
		"list":                {`{"sku":["a","b\""]}`, `"[""a"",""b\""""]",,,`, nil},
		"object":              {`{"sku":{"a":true}}`, `"{""a"":true}",,,`, nil},
		"other fields":        {`{"x":1,"sku":"1","a":2}`, "1,,,", []string{"a", "x"}},
		"text for money":      {`{"price":"1.50"}`, ",,,", []string{"price"}},
		"nothing of the kind": {`{"price":{"amount":"1"}}`, ",1,,", nil},
	} {
		t.Run(name, func(t *testing.T) {
			l := local(t)
			l.Config.Sources[0].Rules = rules
			x := exporterFor(t, l, ExportRequest{Source: "shop", DataOnly: true, Format: FormatCSV})
			got := written(t, x, []*storage.Observation{aRow("a", "", 1, 1, c.data), aRow("gone", "", 1, 1, "")})
			if want := "sku,price.amount,price.currency,n\n" + c.want + "\n"; got != want {
				t.Errorf("the table is\n%q, want\n%q", got, want)
			}
			if diff := cmp.Diff(c.lost, x.table.leftOut()); diff != "" {
				t.Errorf("left out (-want +got):\n%s", diff)
			}
		})
	}
}

// TestExportTableOfOneColumn: readers skip empty lines.
func TestExportTableOfOneColumn(t *testing.T) {
	l := local(t)
	l.Config.Sources[0].Rules = tableRules(t, parser.Field{Name: "sku"})
	x := exporterFor(t, l, ExportRequest{Source: "shop", DataOnly: true, Format: FormatCSV})
	got := written(t, x, []*storage.Observation{aRow("a", "", 1, 1, `{"sku":"1"}`), aRow("b", "", 1, 1, `{"sku":""}`), aRow("c", "", 1, 1, `{"sku":"2"}`)})
	if got != "sku\n1\n\"\"\n2\n" {
		t.Errorf("%q", got)
	}
}

func TestExportTableMeta(t *testing.T) {
	l := local(t)
	l.Config.Sources[0].Rules = tableRules(t, parser.Field{Name: "sku"})
	x := exporterFor(t, l, ExportRequest{Source: "shop", Format: FormatCSV})
	o := aRow("a", "", 1, 4, `{"sku":"1"}`)
	o.Missing, o.URL, o.Job = []string{"m"}, "http://x.test/", "shop:a:-:-:-:-"
	got := written(t, x, []*storage.Observation{o, aRow("gone", "", 1, 1, "")})
	lines := strings.Split(got, "\n")
	for i, want := range []string{
		"sku,_meta.source,_meta.key,_meta.job,_meta.window,_meta.country,_meta.url,_meta.parser_version,_meta.revision,_meta.fingerprint,_meta.observed_at,_meta.missing,_meta.gone",
		fmt.Sprintf(`1,shop,a,shop:a:-:-:-:-,2026-04-23T01:00:00Z,,http://x.test/,4,1,%s,0001-01-01T00:00:00Z,"[""m""]",`, o.Fingerprint()),
		`,shop,gone,,2026-04-23T01:00:00Z,,,1,1,e3b0c44298fc1c149afbf4c8996fb924,0001-01-01T00:00:00Z,[],true`,
	} {
		if lines[i] != want {
			t.Errorf("line %d is\n%s, want\n%s", i+1, lines[i], want)
		}
	}
}

// TestExportTableOfGoneSource: the columns are those of the first row with data.
func TestExportTableOfGoneSource(t *testing.T) {
	l := local(t)
	commit(t, l, 0,
		storage.NewObservation{Key: "a", Gone: true},
		storage.NewObservation{Key: "b", Data: []byte(`{"z":{"amount":"1"},"a":[1,{"x":2}],"m":null}`)},
		storage.NewObservation{Key: "c", Data: []byte(`{"other":1}`)},
	)
	update(t, l, func(tx *storage.Tx) error { return tx.PutSource(storage.Source{Name: "shop"}) })
	l.Config = &config.Config{Sources: []config.Source{{Source: intake.Source{Name: "new"}}}}
	var out bytes.Buffer
	result, err := l.Export(t.Context(), ExportRequest{Source: "shop", DataOnly: true, Format: FormatCSV}, &out)
	if want := "z,a,m\n\"{\"\"amount\"\":\"\"1\"\"}\",\"[1,{\"\"x\"\":2}]\",\n,,\n"; err != nil || out.String() != want {
		t.Errorf("%v\n%q, want\n%q", err, out.String(), want)
	}
	if result.Rows != 2 || !cmp.Equal(result.LeftOut, []string{"other"}) {
		t.Errorf("%+v", result)
	}
}
