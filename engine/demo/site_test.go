package demo

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"semel/engine/config"
	"semel/engine/gateway"
	"semel/parser"
)

// demoRules are the rules of the config that the demo writes.
func demoRules(t testing.TB) *parser.Rules {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "semel.toml")
	if err := folder(dir).write(configText("127.0.0.1:1"), 3); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(path, func(string) string { return "x" })
	if err != nil {
		t.Fatal(err)
	}
	return c.Source(source).Rules
}

func TestRulesMakeTheRecord(t *testing.T) {
	rules := demoRules(t)
	for n := 1; n <= 500; n++ {
		out, err := rules.Parse(parser.Input{
			Body: Page(n), ContentType: "text/html", FinalURL: "http://" + siteHost + productPath + ID(n),
			Target: ID(n), Vars: map[string]string{"id": ID(n)},
		})
		if err != nil {
			t.Fatalf("page %d: %v", n, err)
		}
		if len(out.Records) != 1 || !bytes.Equal(out.Records[0].Data, Record(n)) {
			t.Fatalf("page %d gives\n%s\nwant\n%s", n, out.Records[0].Data, Record(n))
		}
		var want []string
		if n%unratedEvery == 0 {
			want = []string{"rating"}
		}
		if missing := out.Records[0].Missing; !slices.Equal(missing, want) {
			t.Errorf("page %d misses %v, want %v", n, missing, want)
		}
	}
}

// Pages are the same for ever: what a benchmark or a saved result was made of.
func TestRecordsStayAsTheyAre(t *testing.T) {
	for n, want := range map[int]string{
		13: `{"id":"000013","title":"Linen Lantern No. 13","price":{"amount":"685.19","currency":"USD"},"availability":"preorder","rating":"2.9","updated":"2026-01-16T16:05:00Z","images":["https://images.shop.example/000013/1.jpg","https://images.shop.example/000013/2.jpg","https://images.shop.example/000013/3.jpg"]}`,
		14: `{"id":"000014","title":"Oak & Brass Notebook No. 14","price":{"amount":"746.15","currency":"USD"},"availability":"preorder","rating":null,"updated":"2026-02-26T12:52:00Z","images":["https://images.shop.example/000014/1.jpg","https://images.shop.example/000014/2.jpg"]}`,
	} {
		if got := string(Record(n)); got != want {
			t.Errorf("record %d is\n%s\nwant\n%s", n, got, want)
		}
	}
}

func TestSite(t *testing.T) {
	site := Site(12)
	tests := []struct {
		path   string
		status int
		body   []byte // nil: any
	}{
		{"/product/000001", 200, Page(1)},
		{"/product/000012", 200, Page(12)},
		{"/product/000013", 404, nil},
		{"/product/000000", 404, nil},
		{"/product/1", 404, nil},
		{"/product/-00001", 404, nil},
		{"/product/", 404, nil},
		{"/basket", 404, nil},
		{"/robots.txt", 200, []byte("User-agent: *\nDisallow: /basket\n")},
		{"/", 200, nil},
	}
	for _, test := range tests {
		t.Run(test.path, func(t *testing.T) {
			w := httptest.NewRecorder()
			site.ServeHTTP(w, httptest.NewRequest(http.MethodGet, test.path, nil))
			if w.Code != test.status {
				t.Errorf("the status is %d, want %d", w.Code, test.status)
			}
			if test.body != nil && !bytes.Equal(w.Body.Bytes(), test.body) {
				t.Error("the body is not the page")
			}
		})
	}
	for n := 1; n <= 200; n++ {
		if size := len(Page(n)); size < 19_000 || size > 21_000 {
			t.Errorf("page %d has %d bytes, want about 20,000", n, size)
		}
	}
}

func TestID(t *testing.T) {
	for _, n := range []int{1, 42, 99_999, 999_999, 1_000_000} {
		if got, ok := number(ID(n)); !ok || got != n {
			t.Errorf("number(ID(%d)) is %d, %v", n, got, ok)
		}
	}
	for _, id := range []string{"", "0", "1", "000000", "00001", "0000001", "+00001", "-00001", "00000x", "０００００１"} {
		if n, ok := number(id); ok {
			t.Errorf("%q was taken for the id of %d", id, n)
		}
	}
}

func TestShown(t *testing.T) {
	for n, want := range map[int]string{5: "$0.05", 495: "$4.95", 99_999: "$999.99", 100_000: "$1,000.00", 100_105: "$1,001.05", 250_494: "$2,504.94"} {
		if got := shown(n); got != want {
			t.Errorf("shown(%d) is %s, want %s", n, got, want)
		}
	}
}

func TestFaultsAreDrawnFromURLAndTry(t *testing.T) {
	draw := func(f *faults) (list []gateway.Kind) {
		for try := 1; try <= 3; try++ {
			for n := 1; n <= 200; n++ {
				list = append(list, f.next(gateway.Request{URL: "http://" + siteHost + productPath + ID(n), Try: try}).Kind)
			}
		}
		return list
	}
	f := newFaults(DefaultFaults)
	first := draw(f)
	if !slices.Equal(first, draw(newFaults(DefaultFaults))) {
		t.Error("two gateways draw different faults")
	}
	met := 0
	for _, k := range faultKinds {
		if f.met[k.kind] == 0 {
			t.Errorf("no %s among 200 pages", k.name)
		}
		met += f.met[k.kind]
	}
	if met < 45 || met > 75 {
		t.Errorf("%d of 600 requests met a fault, want about 60", met)
	}
	if f.total() != 600 {
		t.Errorf("%d requests were counted, want 600", f.total())
	}
	if want := fmt.Sprintf("%d: dead exit (502) ", met); !bytes.HasPrefix([]byte(f.String()), []byte(want)) {
		t.Errorf("the faults are told as %q, want %q first", f, want)
	}
	for try := range 100 {
		if fault := newFaults(MaxFaults).next(gateway.Request{URL: "http://" + siteHost + robotsPath, Try: try}); fault.Kind != gateway.None {
			t.Fatal("robots.txt met a fault")
		}
	}
	if none := newFaults(0).String(); none != "none" {
		t.Errorf("no faults are told as %q", none)
	}
}

// A request for a page whose record is in the store is what must never happen.
func TestShopCountsRequestsAfterTheCommit(t *testing.T) {
	s := newShop(5, map[string]bool{ID(1): true})
	ask := func(n int) {
		s.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, productPath+ID(n), nil))
	}
	reached := s.awaitServed(2)
	for _, n := range []int{2, 2, 2} {
		ask(n)
	}
	select {
	case <-reached:
		t.Fatal("one product counts as two")
	default:
	}
	ask(3)
	<-reached
	ask(3)
	if served, again := s.counts(); served != 2 || again != 0 {
		t.Errorf("served %d and again %d, want 2 and 0", served, again)
	}
	s.seal(map[string]bool{ID(1): true, ID(2): true})
	for _, n := range []int{1, 2, 3} {
		ask(n)
	}
	if _, again := s.counts(); again != 2 {
		t.Errorf("%d requests after the commit were counted, want 2", again)
	}
}

// The config tells a newcomer what each part is for, and stays short.
func TestConfigIsReadable(t *testing.T) {
	dir := folder(t.TempDir())
	if err := dir.write(configText("127.0.0.1:1"), 3); err != nil {
		t.Fatal(err)
	}
	if own, err := dir.marked(); err != nil || !own {
		t.Errorf("the demo does not know its own config again: %v, %v", own, err)
	}
	targets, err := os.ReadFile(dir.targets())
	if err != nil || string(targets) != "id\n000001\n000002\n000003\n" {
		t.Errorf("targets.csv is %q, %v", targets, err)
	}
	for i, line := range bytes.Split([]byte(configText("127.0.0.1:1")), []byte("\n")) {
		if bytes.Contains(line, []byte("%!")) {
			t.Errorf("line %d is badly formatted: %s", i+1, line)
		}
	}
}

// Every attempt that a death cut off must be taken back.
func TestDeathsAreHeldAgainstRecoveries(t *testing.T) {
	r := &run{Options: Options{Pages: 1}, shop: newShop(1, nil), faults: newFaults(0)}
	found := findings{right: 1}
	r.kills = []kill{{held: 3, resumed: 3}, {held: 2, resumed: 2}}
	if err := r.problems(found); err != nil {
		t.Errorf("the error is %v, want none", err)
	}
	r.kills = []kill{{held: 3, resumed: 0}, {held: 2, resumed: 5}} // the second died before it took anything back
	if err := r.problems(found); err != nil {
		t.Errorf("the error is %v, want none", err)
	}
	r.kills[1].resumed = 4
	if err := r.problems(found); err == nil || !strings.Contains(err.Error(), "1 attempts that a death cut off were not taken back") {
		t.Errorf("the error is %v, want one about an attempt that was not taken back", err)
	}
}

func TestQuote(t *testing.T) {
	for path, want := range map[string]string{"semel-demo/semel.toml": "semel-demo/semel.toml", "my demo/semel.toml": `"my demo/semel.toml"`} {
		if got := quote(path); got != want {
			t.Errorf("quote(%s) is %s, want %s", path, got, want)
		}
	}
}

func BenchmarkSite(b *testing.B) {
	site := Site(1000)
	w := httptest.NewRecorder()
	for n := 0; b.Loop(); n++ {
		w.Body.Reset()
		site.ServeHTTP(w, httptest.NewRequest(http.MethodGet, productPath+ID(n%1000+1), nil))
	}
}
