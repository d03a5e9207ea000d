package parser

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"golang.org/x/text/language"
)

// calendar has the names of months and days of the week in one language: of
// each all forms, from January and from Sunday.
type calendar struct{ months, days [][]string }

// calendarOf gives the calendar of a language such as "de" or "de-AT".
func calendarOf(tag string) (*calendar, bool) {
	parsed, err := language.Parse(tag)
	if err != nil {
		return nil, false
	}
	base, _ := parsed.Base()
	names, ok := calendarNames[base.String()]
	forms := func(text string) (list [][]string) {
		for word := range strings.FieldsSeq(text) {
			list = append(list, strings.Split(word, "/"))
		}
		return list
	}
	return &calendar{forms(names.months), forms(names.days)}, ok
}

// calendarLanguages are the languages that there are calendars of.
func calendarLanguages() []string { return slices.Sorted(maps.Keys(calendarNames)) }

// calendarMark finds the names in a layout, with the dot that shortens them.
var calendarMark = regexp.MustCompile(`(January|Jan|Monday|Mon)\.?`)

// inEnglish is a layout as english translates the texts for it: with the short
// names, and which of them in order are of months.
func inEnglish(layout string) (english string, months []bool) {
	english = calendarMark.ReplaceAllStringFunc(layout, func(name string) string {
		months = append(months, name[0] == 'J')
		return name[:3]
	})
	return english, months
}

// english puts the short English names in place of those in text, long or
// short, with the dot behind them. months says which names there are, in order;
// words that are none of them stay.
func (c *calendar) english(text string, months []bool) string {
	var b strings.Builder
	for len(months) > 0 && text != "" {
		start := strings.IndexFunc(text, unicode.IsLetter)
		if start < 0 {
			break
		}
		end := start + wordLength(text[start:])
		name := c.name(text[start:end], months[0])
		b.WriteString(text[:start])
		if name == "" {
			b.WriteString(text[start:end])
		} else {
			b.WriteString(name)
			months = months[1:]
			end += len(text[end:]) - len(strings.TrimPrefix(text[end:], "."))
		}
		text = text[end:]
	}
	return b.String() + text
}

// wordLength is how many bytes the word at the start of text has: letters, and
// hyphens between them.
func wordLength(text string) int {
	length, hyphen := 0, false
	for i, r := range text {
		letter := unicode.IsLetter(r) || unicode.IsMark(r)
		if !letter && (r != '-' || hyphen) {
			break
		}
		hyphen = !letter
		if letter {
			length = i + len(string(r))
		}
	}
	return length
}

// name is the short English name of a word, "" where it is no name.
func (c *calendar) name(word string, month bool) string {
	is := func(form string) bool { return strings.EqualFold(form, word) }
	if month {
		if i := slices.IndexFunc(c.months, func(forms []string) bool { return slices.ContainsFunc(forms, is) }); i >= 0 {
			return time.Month(i + 1).String()[:3]
		}
		return ""
	}
	if i := slices.IndexFunc(c.days, func(forms []string) bool { return slices.ContainsFunc(forms, is) }); i >= 0 {
		return time.Weekday(i).String()[:3]
	}
	return ""
}

// calendarNames are the names as they stand in dates, of CLDR and the forms that
// pages use beside them.
var calendarNames = map[string]struct{ months, days string }{
	"cs": {
		"ledna/leden/led února/únor/úno března/březen/bře dubna/duben/dub května/květen/kvě června/červen/čvn července/červenec/čvc srpna/srpen/srp září/zář října/říjen/říj listopadu/listopad/lis prosince/prosinec/pro",
		"neděle/ne pondělí/po úterý/út středa/st čtvrtek/čt pátek/pá sobota/so",
	},
	"da": {
		"januar/jan februar/feb marts/mar april/apr maj juni/jun juli/jul august/aug september/sep/sept oktober/okt november/nov december/dec",
		"søndag/søn mandag/man tirsdag/tir/tirs onsdag/ons torsdag/tor/tors fredag/fre lørdag/lør",
	},
	"de": {
		"Januar/Jan/Jänner/Jän Februar/Feb/Feber März/Mär/Mrz/Maerz April/Apr Mai Juni/Jun Juli/Jul August/Aug September/Sep/Sept Oktober/Okt November/Nov Dezember/Dez",
		"Sonntag/So Montag/Mo Dienstag/Di Mittwoch/Mi Donnerstag/Do Freitag/Fr Samstag/Sa/Sonnabend",
	},
	"en": {
		"January/Jan February/Feb March/Mar April/Apr May June/Jun July/Jul August/Aug September/Sep/Sept October/Oct November/Nov December/Dec",
		"Sunday/Sun Monday/Mon Tuesday/Tue/Tues Wednesday/Wed Thursday/Thu/Thur/Thurs Friday/Fri Saturday/Sat",
	},
	"es": {
		"enero/ene febrero/feb marzo/mar abril/abr mayo/may junio/jun julio/jul agosto/ago septiembre/setiembre/sep/sept/set octubre/oct noviembre/nov diciembre/dic",
		"domingo/dom lunes/lun martes/mar miércoles/mié jueves/jue viernes/vie sábado/sáb",
	},
	"fi": {
		"tammikuuta/tammikuu/tammi helmikuuta/helmikuu/helmi maaliskuuta/maaliskuu/maalis huhtikuuta/huhtikuu/huhti toukokuuta/toukokuu/touko kesäkuuta/kesäkuu/kesä heinäkuuta/heinäkuu/heinä elokuuta/elokuu/elo syyskuuta/syyskuu/syys lokakuuta/lokakuu/loka marraskuuta/marraskuu/marras joulukuuta/joulukuu/joulu",
		"sunnuntaina/sunnuntai/su maanantaina/maanantai/ma tiistaina/tiistai/ti keskiviikkona/keskiviikko/ke torstaina/torstai/to perjantaina/perjantai/pe lauantaina/lauantai/la",
	},
	"fr": {
		"janvier/janv/jan février/févr/fév mars avril/avr mai juin juillet/juil août/aoû septembre/sept/sep octobre/oct novembre/nov décembre/déc",
		"dimanche/dim lundi/lun mardi/mar mercredi/mer jeudi/jeu vendredi/ven samedi/sam",
	},
	"hu": {
		"január/jan február/febr/feb március/márc április/ápr május/máj június/jún július/júl augusztus/aug szeptember/szept október/okt november/nov december/dec",
		"vasárnap/vas hétfő/hét kedd szerda/szer csütörtök/csüt péntek/pén szombat/szom",
	},
	"it": {
		"gennaio/gen febbraio/feb marzo/mar aprile/apr maggio/mag giugno/giu luglio/lug agosto/ago settembre/set/sett ottobre/ott novembre/nov dicembre/dic",
		"domenica/dom lunedì/lun martedì/mar mercoledì/mer giovedì/gio venerdì/ven sabato/sab",
	},
	"nl": {
		"januari/jan februari/feb maart/mrt april/apr mei juni/jun juli/jul augustus/aug september/sep/sept oktober/okt november/nov december/dec",
		"zondag/zo maandag/ma dinsdag/di woensdag/wo donderdag/do vrijdag/vr zaterdag/za",
	},
	"no": {
		"januar/jan februar/feb mars/mar april/apr mai juni/jun juli/jul august/aug september/sep/sept oktober/okt november/nov desember/des",
		"søndag/søn mandag/man tirsdag/tir/tirs onsdag/ons torsdag/tor/tors fredag/fre lørdag/lør",
	},
	"pl": {
		"stycznia/styczeń/sty lutego/luty/lut marca/marzec/mar kwietnia/kwiecień/kwi maja/maj czerwca/czerwiec/cze lipca/lipiec/lip sierpnia/sierpień/sie września/wrzesień/wrz października/październik/paź listopada/listopad/lis grudnia/grudzień/gru",
		"niedziela/niedz/nd poniedziałek/pon wtorek/wt środa/śr czwartek/czw piątek/pt sobota/sob",
	},
	"pt": {
		"janeiro/jan fevereiro/fev março/mar abril/abr maio/mai junho/jun julho/jul agosto/ago setembro/set outubro/out novembro/nov dezembro/dez",
		"domingo/dom segunda-feira/segunda/seg terça-feira/terça/ter quarta-feira/quarta/qua quinta-feira/quinta/qui sexta-feira/sexta/sex sábado/sáb",
	},
	"ro": {
		"ianuarie/ian februarie/feb martie/mar aprilie/apr mai iunie/iun iulie/iul august/aug septembrie/sept/sep octombrie/oct noiembrie/nov/noi decembrie/dec",
		"duminică/dum luni/lun marți/mar miercuri/mie joi vineri/vin sâmbătă/sâm",
	},
	"ru": {
		"января/январь/янв февраля/февраль/февр/фев марта/март/мар апреля/апрель/апр мая/май июня/июнь/июн июля/июль/июл августа/август/авг сентября/сентябрь/сент/сен октября/октябрь/окт ноября/ноябрь/нояб/ноя декабря/декабрь/дек",
		"воскресенье/вс понедельник/пн вторник/вт среда/ср четверг/чт пятница/пт суббота/сб",
	},
	"sv": {
		"januari/jan februari/feb mars/mar april/apr maj juni/jun juli/jul augusti/aug september/sep/sept oktober/okt november/nov december/dec",
		"söndag/sön måndag/mån tisdag/tis/tisd onsdag/ons torsdag/tors fredag/fre lördag/lör",
	},
	"tr": {
		"Ocak/Oca Şubat/Şub Mart/Mar Nisan/Nis Mayıs/May Haziran/Haz Temmuz/Tem Ağustos/Ağu Eylül/Eyl Ekim/Eki Kasım/Kas Aralık/Ara",
		"Pazar/Paz Pazartesi/Pzt Salı/Sal Çarşamba/Çar Perşembe/Per Cuma/Cum Cumartesi/Cmt",
	},
	"uk": {
		"січня/січень/січ лютого/лютий/лют березня/березень/бер квітня/квітень/квіт/кві травня/травень/трав/тра червня/червень/черв/чер липня/липень/лип серпня/серпень/серп/сер вересня/вересень/вер жовтня/жовтень/жовт/жов листопада/листопад/лист/лис грудня/грудень/груд/гру",
		"неділя/нд понеділок/пн вівторок/вт середа/ср четвер/чт пʼятниця/пт субота/сб",
	},
}
