package parser

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// corpusModule holds more than 1,000 saved public pages in its test-files.
const corpusModule = "github.com/markusmobius/go-trafilatura@v1.12.2"

// corpus gives the folder of the pages. Like all tests of real parts those of
// the corpus run where SEMEL_REAL is set.
func corpus(t *testing.T) string {
	t.Helper()
	if os.Getenv("SEMEL_REAL") == "" {
		t.Skip("SEMEL_REAL is not set: tests of the corpus run in .ci/run")
	}
	out, err := exec.Command("go", "mod", "download", "-json", corpusModule).Output()
	if err != nil {
		t.Fatalf("downloading the corpus: %v\n%s", err, out)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(out, &module); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(module.Dir, "test-files")
}

// corpusInput reads a page. One that is not UTF-8 is read as it stands: what the
// fetcher makes of it is no matter here.
func corpusInput(t *testing.T, root, file string) Input {
	t.Helper()
	body, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	return Input{Body: body, FinalURL: "https://www.example/" + filepath.Base(file), Target: file}
}

// TestCorpusFields: each kind of rule on pages as they are.
func TestCorpusFields(t *testing.T) {
	root := corpus(t)
	for _, c := range []struct {
		file  string
		field Field
		want  string // value, or the beginning of an error behind "!"
	}{
		{"mock/heise.de.lithium.html", Field{Rule: Rule{CSS: "a-analytics script", JSON: ".vars.contentId"}}, `"www.heise.de.newsticker.meldung.lithium-aus-dem-schredder-4451133"`},
		{"mock/brandenburg.de.homo-brandenburgensis.html", Field{Rule: Rule{CSS: `script[type="application/json"]`, JSON: ".path.baseUrl"}, Type: "url"}, `"https://www.example/"`},
		{"mock/fairkom.eu.about.html", Field{Rule: Rule{XPath: `//script[@data-drupal-selector]`, JSON: ".path.currentLanguage"}}, `"de"`},
		{"mock/futurezone.at.lyft.html", Field{Rule: Rule{CSS: "#hermes-cfs-state", JSON: ".a"}}, `!parse_error: field x: there is no JSON value`},
		{"comparison/medicalnewstoday.com.318674.html", Field{Rule: Rule{CSS: "script#__NEXT_DATA__", JSON: ".page"}}, `null?`},
		{"comparison/finanzcheck.de.finanzierung.html", Field{Rule: Rule{CSS: "script#__NEXT_DATA__", JSON: ".buildId"}}, `"8b10b65cbbfc3623766baeb5"`},
		{"mock/basicthinking.de.tweets.html", Field{Rule: Rule{Regex: `window\._wpemojiSettings\s*=`, JSON: ".ext"}}, `".png"`},
		{"mock/chip.de.beef.html", Field{Rule: Rule{Regex: `window\.digitalData\s*=`, JSON: ".page.pageinfo.pageID"}}, `"102690419"`},
		{"mock/basicthinking.de.tweets.html", Field{Rule: Rule{JSONLD: "name", Schema: "Person"}}, `"Meike Neitz"`},
		{"mock/crazy-julia.de.tipps.html", Field{Rule: Rule{JSONLD: "name", Schema: "Organization"}}, `"Julia"`},
		{"mock/github.blog.spiceland.html", Field{Rule: Rule{JSONLD: "name", Schema: "WebSite"}}, `"The GitHub Blog"`},
		{"comparison/lavazza.de.qualita.html", Field{Rule: Rule{JSONLD: "name", Schema: "Product"}}, `"Qualità Oro - Perfect Symphony, 250g Dose"`},
		{"mock/toralin.de.schmierfett.html", Field{Rule: Rule{Microdata: "offers.price", Schema: "Product"}, Type: "decimal"}, `"4.92"`},
		{"mock/toralin.de.schmierfett.html", Field{Rule: Rule{Microdata: "title", Schema: "http://data-vocabulary.org/Breadcrumb"}}, `"Home"`},
		{"comparison/zooroyal.de.trixie.html", Field{Rule: Rule{Microdata: "itemListElement.name", Schema: "BreadcrumbList"}, Join: " > "}, `"ZooRoyal.de > Kleintier > Kleintierheim > Stall"`},
		{"comparison/villacc.de.galaxy.html", Field{Rule: Rule{Microdata: "geo.latitude", Schema: "Place"}, Type: "decimal"}, `"26.551115"`},
		{"comparison/uniqz.de.katzendecke.html", Field{Rule: Rule{Microdata: "offers.price", Schema: "Product"}, Type: "money", Decimal: ","}, `{"amount":"36.00","currency":"EUR"}`},
		{"comparison/villacc.de.galaxy.html", Field{Rule: Rule{Microdata: "offers", Schema: "Product"}}, `!validation: field x: is an object where one value was expected`},
		{"mock/toralin.de.schmierfett.html", Field{Rule: Rule{Table: "Marke"}}, `"XADO"`},
		{"comparison/comparis.ch.autofinanzierung.html", Field{Rule: Rule{Table: "Kaufpreis Auto"}, Type: "integer"}, `30000`},
		{"comparison/bafa.de-mineraloelabsatz.html", Field{Rule: Rule{Table: "Ottokraftstoff"}, Many: true}, `["15,02 Mio. t","15,12 Mio. t","0,7 %"]`},
		{"comparison/anglerboard.de-rute.html", Field{Rule: Rule{Table: "Autor"}}, `"Catch more fish"`},
		{"mock/chip.de.beef.html", Field{Rule: Rule{Table: "Vorteile"}, Join: "; "}, `"Niedriger Preis; Gute Verarbeitung; Üppige Ausstattung; Perfektes Steak-Ergebnis"`},
		{"mock/wehranlage-horka.de.887.html", Field{Rule: Rule{Table: "anlass"}}, `"Historischer Markt"`},
		{"comparison/0afd671fc2b64f3caa83a91537e8d343.html", Field{Rule: Rule{Regex: `Sachschaden von ([\d']+) Franken`}, Type: "integer"}, `80000`},
		{"comparison/auto-wirtschaft.ch-camping.html", Field{Rule: Rule{Regex: `über ([\d’]+) Besucher`}, Type: "integer"}, `50000`},
		{"comparison/baechli-bergsport.ch-lawinen.html", Field{Rule: Rule{CSS: "#none, [data-variant-id=onyx-black] .retail-price"}, Type: "money"}, `{"amount":"1029","currency":"CHF"}`},
		{"comparison/d51e75d9e53a472bb7708191899aa6b4.html", Field{Rule: Rule{Regex: `Kirchengemeinde (\d+\x{2009}\d+) Euro`}, Type: "integer"}, `450000`},
		{"comparison/link.springer.com.1007.html", Field{Rule: Rule{CSS: ".buybox__price"}, Type: "money", Decimal: ","}, `{"amount":"37.40","currency":"EUR"}`},
		{"comparison/ebike-mtb.com-OFFROAD.html", Field{Rule: Rule{CSS: ".price"}, Type: "money"}, `!validation: field x: can be read as 11.499 and as 11499; set decimal (got "11.499 €")`},
		{"mock/pcgamer.com.skyrim.html", Field{Rule: Rule{CSS: ".hawk-display-price-price"}, Type: "money"}, `!validation: field x: can be read in USD and in CAD; set currency or locale (got "$32.49")`},
		{"mock/pcgamer.com.skyrim.html", Field{Rule: Rule{CSS: ".hawk-display-price-price"}, Type: "money", Locale: "en-US"}, `{"amount":"32.49","currency":"USD"}`},
		{"comparison/selbst.de-wurmkiste.html", Field{Rule: Rule{XPath: "//span[contains(@class, 'meta-value') and contains(., '€')]"}, Type: "money"}, `!validation: field x: is a range and can be read as 25 and as 100; set pick (got "25 - 100 €")`},
		{"comparison/selbst.de-wurmkiste.html", Field{Rule: Rule{XPath: "//span[contains(@class, 'meta-value') and contains(., '€')]"}, Type: "money", Pick: "max"}, `{"amount":"100","currency":"EUR"}`},
		{"mock/brigitte.de.ikigai.html", Field{Rule: Rule{CSS: "time .date"}, Type: "date", Layout: "2. January 2006", Language: "de"}, `"2019-06-19"`},
		{"mock/changelog.blog.zwischenbilanz.html", Field{Rule: Rule{CSS: ".single_blog_meta_div .prk_lf"}, Type: "date", Layout: "2. January 2006", Language: "de"}, `"2019-05-20"`},
		{"mock/sauvonsluniversite.com.spip.html", Field{Rule: Rule{CSS: "abbr.published"}, Type: "date", Layout: "Monday 2 January 2006", Language: "fr"}, `"2019-09-11"`},
		{"comparison/elmostrador.cl-congreso.html", Field{Rule: Rule{CSS: ".fecha small span"}, Type: "date", Layout: "Monday, 2 de January de 2006", Language: "es"}, `"2022-05-04"`},
		{"comparison/football.ua.podolski.html", Field{Rule: Rule{CSS: "p.date"}, Type: "timestamp", Layout: "2 January 2006, 15:04", Language: "ru", Timezone: "Europe/Kyiv"}, `"2016-08-15T10:43:00Z"`},
		{"mock/brigitte.de.ikigai.html", Field{Rule: Rule{CSS: "time .date"}, Type: "date", Layout: "2 January 2006", Language: "fr"}, `!validation: field x: is not a date like 2 January 2006 in fr (got "19. Juni 2019")`},
		{"comparison/zooroyal.de.trixie.html", Field{Rule: Rule{CSS: ".breadcrumb li"}, Last: true}, `"Stall"`},
	} {
		t.Run(c.file, func(t *testing.T) {
			got := parseField(t, corpusInput(t, root, c.file), c.field)
			if got != c.want && !(strings.HasPrefix(c.want, "!") && strings.HasPrefix(got, c.want)) {
				t.Errorf("%+v gives %.300s, want %s", c.field, got, c.want)
			}
		})
	}
}

// corpusRules read what most pages have, by every kind of rule.
func corpusRules(t *testing.T) *Rules {
	return mustCompile(t, Spec{Version: 1, Links: []string{"a"}, Fields: []Field{
		{Name: "title", Rule: Rule{CSS: "title"}},
		{Name: "headings", Rule: Rule{XPath: "//h1 | //h2"}, Many: true},
		{Name: "text", Rule: Rule{CSS: "p"}, Join: "\n"},
		{Name: "html", Rule: Rule{CSS: "article"}, Type: "html"},
		{Name: "meta", Rule: Rule{Meta: "og:title"}},
		{Name: "headline", Rule: Rule{JSONLD: "headline"}},
		{Name: "nodes", Rule: Rule{JSONLD: "name", Schema: "Organization"}, Many: true},
		{Name: "item", Rule: Rule{Microdata: "name"}, Last: true},
		{Name: "cells", Rule: Rule{Table: "Name"}, Many: true},
		{Name: "emoji", Rule: Rule{Regex: `window\._wpemojiSettings\s*=`, JSON: "."}, Type: "object"},
		{Name: "years", Rule: Rule{Regex: `\b20[12]\d\b`}, Many: true, Type: "integer"},
		{Name: "images", Rule: Rule{CSS: "img"}, Attr: "src", Last: true},
	}})
}

// TestCorpusSameBytes reads the whole corpus twice, by one goroutine and by
// many, and wants the same bytes, which are those of the rules' version. With
// the race detector, which takes ten times as long, it reads each tenth page.
func TestCorpusSameBytes(t *testing.T) {
	root := corpus(t)
	files, err := filepath.Glob(filepath.Join(root, "*", "*"))
	if err != nil || len(files) < 1000 {
		t.Fatalf("the corpus has %d pages, %v", len(files), err)
	}
	step := 1
	if raceDetector {
		step = 10
	}
	rules := corpusRules(t)
	read := func(file string) string {
		in := corpusInput(t, root, strings.TrimPrefix(file, root))
		out, err := rules.Parse(in)
		return fmt.Sprintf("%s\n%v\n%s%v %d\n", in.Target, err, out.text(), out.Links, out.BadLinks)
	}
	first := make([]string, len(files))
	for i := 0; i < len(files); i += step {
		first[i] = read(files[i])
	}
	var group sync.WaitGroup
	for part := range 8 {
		group.Go(func() {
			for i := part * step; i < len(files); i += 8 * step {
				if again := read(files[i]); again != first[i] {
					t.Errorf("%s gives other bytes when read again", files[i])
				}
			}
		})
	}
	group.Wait()
	if raceDetector {
		return
	}
	failed := 0
	for _, text := range first {
		if !strings.Contains(text, "\n<nil>\n") {
			failed++
			t.Logf("%.250s", text)
		}
	}
	t.Logf("%d of %d pages failed", failed, len(files))
	keepsChecksum(t, "corpus", rules.Version(), []byte(strings.Join(first, "")))
}
