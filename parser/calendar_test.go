package parser

import (
	"strings"
	"testing"

	"golang.org/x/text/unicode/norm"
)

func TestLanguage(t *testing.T) {
	for _, c := range []struct{ text, layout, language, want string }{
		{"10. Dezember 2022", "2. January 2006", "de", `"2022-12-10"`},
		{"10. Dez. 2022", "2. January 2006", "de", `"2022-12-10"`},
		{"3. MÄRZ 2022", "2. Jan 2006", "de", `"2022-03-03"`},
		{"3. Ma\u0308rz 2022", "2. Jan 2006", "de", `"2022-03-03"`},
		{"7. Jänner 2022", "2. Jan 2006", "de-AT", `"2022-01-07"`},
		{"3.Feb.2022", "2.Jan.2006", "de", `"2022-02-03"`},
		{"Sa., 10. Dez. 2022", "Mon, 2. Jan 2006", "de", `"2022-12-10"`},
		{"mar, 3 mar 2020", "Mon, 2 Jan 2006", "es", `"2020-03-03"`},
		{"3 de marzo de 2020", "2 de January de 2006", "es", `"2020-03-03"`},
		{"1er août 2021", "2er January 2006", "fr", `"2021-08-01"`},
		{"segunda-feira, 7 de março de 2022", "Monday, 2 de January de 2006", "pt", `"2022-03-07"`},
		{"10-dez-2022", "2-Jan-2006", "pt", `"2022-12-10"`},
		{"23 апреля 2026 г.", "2 January 2006 г.", "ru", `"2026-04-23"`},
		{"2026. április 23.", "2006. January 2.", "hu", `"2026-04-23"`},
		{"Sept. 5, 2022", "January 2, 2006", "en", `"2022-09-05"`},
		{"23 Nisan 2026", "2 January 2006", "tr", `"2026-04-23"`},
		{"5. mars 2022", "2. January 2006", "no", `"2022-03-05"`},
		{"10. December 2022", "2. January 2006", "de", `!is not a date like 2. January 2006 in de (got "10. December 2022")`},
		{"10. Dezember", "2. January 2006", "de", `!is not a date like`},
		{"Dezember 10. Dezember 2022", "2. January 2006", "de", `!is not a date like`},
	} {
		got := parseField(t, Input{Target: "1"}, Field{Rule: Rule{Const: c.text}, Type: "date", Layout: c.layout, Language: c.language})
		got = strings.Replace(got, "validation: field x: ", "", 1)
		if got != c.want && !(c.want[0] == '!' && strings.HasPrefix(got, c.want)) {
			t.Errorf("%q gives %s, want %s", c.text, got, c.want)
		}
	}
	got := parseField(t, Input{Target: "1"}, Field{Rule: Rule{Const: "10. Dez 2022, 07:05"}, Type: "timestamp", Layout: "2. Jan 2006, 15:04", Language: "de", Timezone: "Europe/Berlin"})
	if want := `"2022-12-10T06:05:00Z"`; got != want {
		t.Errorf("the timestamp is %s, want %s", got, want)
	}
}

// TestCalendars: each language has a name for each month and day, and none that
// is two.
func TestCalendars(t *testing.T) {
	for _, tag := range calendarLanguages() {
		c, ok := calendarOf(tag)
		if !ok || len(c.months) != 12 || len(c.days) != 7 {
			t.Errorf("%s has %d months and %d days", tag, len(c.months), len(c.days))
		}
		for _, list := range [][][]string{c.months, c.days} {
			seen := map[string]bool{}
			for _, forms := range list {
				for _, form := range forms {
					if lower := strings.ToLower(form); seen[lower] || !norm.NFC.IsNormalString(form) || wordLength(form) != len(form) {
						t.Errorf("%s: %s stands twice, is not NFC or no word", tag, form)
					}
					seen[strings.ToLower(form)] = true
				}
			}
		}
	}
}
