package engine

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"semel/engine/delivery"
	"semel/storage"
)

const schemaFolder = "delivery/schema"

// schemas are those of all types of events, by type. Where strict is set nothing
// is let through that they do not name, but for the fields of a record.
func schemas(t *testing.T, strict bool) map[string]*jsonschema.Schema {
	t.Helper()
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	files, err := filepath.Glob(schemaFolder + "/*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if strict {
			closeObjects(doc)
		}
		if err := c.AddResource(filepath.Base(file), doc); err != nil {
			t.Fatal(err)
		}
	}
	all := map[string]*jsonschema.Schema{}
	for _, event := range storage.EventTypes {
		if all[event], err = c.Compile(event + ".json"); err != nil {
			t.Fatal(err)
		}
	}
	if len(files) != len(all)+1 {
		t.Errorf("%d files describe the envelope and %d types", len(files), len(all))
	}
	return all
}

// closeObjects forbids what a schema does not name in each object of which it
// names something. A record is named by the source's rules alone.
func closeObjects(schema any) {
	switch at := schema.(type) {
	case map[string]any:
		properties, ok := at["properties"].(map[string]any)
		_, record := properties["_meta"]
		if ok && at["type"] == "object" && !record {
			at["additionalProperties"] = false
		}
		for _, part := range at {
			closeObjects(part)
		}
	case []any:
		for _, part := range at {
			closeObjects(part)
		}
	}
}

// emitted are the events of a store, as every sink gets them.
func emitted(t *testing.T, s *storage.Store) (events [][]byte) {
	t.Helper()
	err := s.View(func(tx *storage.Tx) error {
		pending, err := tx.PendingEvents("all", 0, 1000)
		for _, e := range pending {
			events = append(events, delivery.AppendJSON(nil, e), delivery.AppendReference(nil, e))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return events
}

// everything works sources of all kinds, so that events of each type come to be
// in a store, for a sink that wants all of them.
func everything(t *testing.T) *storage.Store {
	t.Helper()
	s := openStore(t)
	all := []storage.Subscription{{Sink: "all", Events: storage.EventTypes}}
	title := "Thing"
	web := newSite(func(req *http.Request, _ int) (*http.Response, error) {
		if strings.HasSuffix(req.URL.Path, "/003") {
			return respond(404, "no such thing"), nil
		}
		if strings.HasPrefix(req.URL.Path, "/d/") && req.URL.Path > "/d/040" {
			return respond(200, "<p>no title"), nil
		}
		if strings.HasSuffix(req.URL.Path, "/002") && title == "Other" {
			return respond(200, "<p>no title"), nil
		}
		return respond(200, "<h1>"+title+" \u00fc &amp; \"</h1>"), nil
	})
	shop, lost, rows := source(t, 3), source(t, 3), source(t, 2)
	lost.Name, lost.Gone = "lost", true
	rows.Name, rows.Write, rows.Windowed = "rows", storage.WriteReplace, true
	drifting := otherSource(t, "drifting", "http://shop.test/d/{id}", 60)
	drifting.Drift = storage.DriftPolicy{Fall: storage.Whole / 2, Min: 10, Jobs: 20, Failed: 12}
	for _, src := range []*Source{&shop, &lost, &rows, &drifting} {
		src.Sinks = all
	}
	opts := options(s, web, shop, lost, rows, drifting)
	offerWindow(t, s, &rows, time.Date(2026, 4, 23, 15, 0, 0, 0, time.UTC))
	runOnce(t, opts)
	title = "Other"
	for _, again := range []string{"001", "002"} {
		j, _ := job(t, s, again)
		if err := s.Update(t.Context(), func(tx *storage.Tx) error { _, err := tx.RecollectJob(j.ID); return err }); err != nil {
			t.Fatal(err)
		}
	}
	runOnce(t, opts)
	im, _ := importer(t, s, "none.csv", "id\n")
	im.Sinks, im.Record = all, StoredSource(shop.Name, shop.IdentityText, shop.Rules)
	runImport(t, im)
	return s
}

// Events of all types are what their schemas say, whole and as references, and
// say nothing that these do not name.
func TestSchemasOfEvents(t *testing.T) {
	open, strict := schemas(t, false), schemas(t, true)
	seen := map[string]int{}
	for _, text := range emitted(t, everything(t)) {
		e, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		event := e.(map[string]any)["type"].(string)
		seen[event]++
		if err := open[event].Validate(e); err != nil {
			t.Errorf("%s\n%v", text, err)
		}
		if err := strict[event].Validate(e); err != nil {
			t.Errorf("it says what its schema does not name: %s\n%v", text, err)
		}
	}
	if types := slices.Sorted(maps.Keys(seen)); !slices.Equal(types, slices.Sorted(slices.Values(storage.EventTypes))) {
		t.Errorf("events of the types %q", types)
	}
}

// What is no event of a type does not pass for one.
func TestSchemasRefuse(t *testing.T) {
	all := schemas(t, false)
	whole := map[string][]string{} // by type: jobs end in any order, so the first may lack a window
	for _, text := range emitted(t, everything(t)) {
		var head struct{ Type string }
		if err := json.Unmarshal(text, &head); err != nil {
			t.Fatal(err)
		}
		whole[head.Type] = append(whole[head.Type], string(text))
	}
	valid := func(event, text string) bool {
		doc, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		return all[event].Validate(doc) == nil
	}
	for _, event := range storage.EventTypes {
		for _, other := range storage.EventTypes {
			if event != other && valid(event, whole[other][0]) {
				t.Errorf("%s passes for %s", other, event)
			}
		}
	}
	for _, test := range []struct{ event, old, new string }{
		{storage.EventCreated, `"id":"evt_`, `"id":"msg_`},
		{storage.EventCreated, `"id":`, `"ID":`},
		{storage.EventCreated, `"timestamp":"`, `"timestamp":"x`},
		{storage.EventCreated, `Z","data"`, `+02:00","data"`},
		{storage.EventCreated, `"_meta":{`, `"meta":{`},
		{storage.EventCreated, `"revision":1`, `"revision":0`},
		{storage.EventCreated, `"window":null`, `"window":""`},
		{storage.EventCreated, `"fingerprint":"`, `"fingerprint":"Z`},
		{storage.EventUpdated, `"missing":[`, `"missing":[1`},
		{storage.EventUpdated, `"parser_version":1`, `"parser_version":"1"`},
		{storage.EventReplaced, `"rows":2`, `"rows":-2`},
		{storage.EventReplaced, `"revision":1`, `"revision":0`},
		{storage.EventReplaced, `"window":"`, `"window":"x`},
		{storage.EventReplaced, `"sha256":"`, `"sha256":"0`},
		{storage.EventJobComplete, `"state":"complete"`, `"state":"failed"`},
		{storage.EventJobFailed, `"state":"failed"`, `"state":"complete"`},
		{storage.EventJobFailed, `"attempts":1`, `"attempts":1.5`},
		{storage.EventJobFailed, `"category":"not_found"`, `"category":null`},
		{storage.EventJobFailed, `"reason":`, `"why":`},
		{storage.EventJobFailed, `"window":null`, `"window":""`},
		{storage.EventJobComplete, `"window":"`, `"window":"x`},
		{storage.EventJobFailed, `"country":null`, `"country":1`},
		{storage.EventQuarantined, `"window":null,`, ``},
		{storage.EventQuarantined, `"parser_version":1`, `"parser_version":-1`},
		{storage.EventQuarantined, `"problems":[{`, `"problems":[[],{`},
		{storage.EventQuarantined, `"row":null`, `"row":-1`},
		{storage.EventQuarantined, `"more":0`, `"more":null`},
		{storage.EventDrifted, `"field":"title"`, `"field":1`},
		{storage.EventDrifted, `"host":"shop.test",`, ``},
		{storage.EventDrifted, `"country":null,"parser_version"`, `"country":1,"parser_version"`},
		{storage.EventDrifted, `"share_now":`, `"share_now":-1`},
		{storage.EventDrifted, `"share_before":`, `"share_before":-`},
		{storage.EventDrifted, `"pages":`, `"pages":0.5,"more":`},
		{storage.EventDrifted, `"since":"`, `"since":"x`},
		{storage.EventDrifted, `"example":{"job":`, `"example":{"key":`},
		{storage.EventDrifted, `"paused":false`, `"paused":null`},
		{storage.EventRunFinished, `"kind":"window",`, ``},
		{storage.EventRunFinished, `"jobs":2`, `"jobs":"2"`},
	} {
		i := slices.IndexFunc(whole[test.event], func(text string) bool { return strings.Contains(text, test.old) })
		if i < 0 {
			t.Errorf("no %s has %s: %s", test.event, test.old, whole[test.event])
			continue
		}
		if broken := strings.Replace(whole[test.event][i], test.old, test.new, 1); valid(test.event, broken) {
			t.Errorf("%s with %s passes: %s", test.event, test.new, broken)
		}
	}
}
