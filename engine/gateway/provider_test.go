package gateway

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// The strings are those of the providers' documents; account U, key P.
func TestProviderLogins(t *testing.T) {
	for _, test := range []struct {
		provider, account string // account: "" is U
		user, pass        string
		want              Login
	}{
		{"packetstream", "", "U", "P_country-UnitedStates_session-abcd1234", Login{Country: "US", Session: "abcd1234", Strict: true}},
		{"packetstream", "", "U", "P_country-Germany", Login{Country: "DE"}},
		{"packetstream", "", "U", "P", Login{}},
		{"brightdata", "brd-customer-ID-zone-ZONE", "brd-customer-ID-zone-ZONE-country-us-state-ny-city-newyork-session-abc123-const", "P", Login{Country: "US", Session: "abc123", Strict: true}},
		{"brightdata", "ID-zone-ZONE", "brd-customer-ID-zone-ZONE-session-abc123", "P", Login{Session: "abc123"}},
		{"oxylabs", "", "customer-U-cc-US-st-us_california-city-new_york-sessid-abc12345-sesstime-5", "P", Login{Country: "US", Session: "abc12345", TTL: 5 * time.Minute}},
		{"oxylabs", "customer-U", "customer-U-cc-GB-sessid_oneip-abc12345", "P", Login{Country: "GB", Session: "abc12345", Strict: true}},
		{"decodo", "", "user-U-country-us-city-new_york-session-abc-sessionduration-30", "", Login{}},
		{"decodo", "", "user-U-country-us-city-new_york-session-abc-sessionduration-30", "P", Login{Country: "US", Session: "abc", TTL: 30 * time.Minute}},
		{"decodo", "user-U", "user-U-session_iplock-abc", "P", Login{Session: "abc", Strict: true}},
		{"iproyal", "", "U", "P_country-us_state-florida_city-miami_session-ab12cd34_lifetime-30m", Login{Country: "US", Session: "ab12cd34", TTL: 30 * time.Minute}},
		{"soax", "PKGID", "package-PKGID-country-us-region-new+york-city-new+york-isp-verizon-sessionid-rand1-sessionlength-300", "P", Login{Country: "US", Session: "rand1", TTL: 300 * time.Second}},
		{"netnut", "", "U-res-us-sid-917244575", "P", Login{Country: "US", Session: "917244575"}},
		{"netnut", "", "U-res_sc-nl_amsterdam-sid-917244575", "P", Login{Country: "NL", Session: "917244575"}},
		{"netnut", "", "U-res-uk", "P", Login{Country: "GB"}},
		{"netnut", "", "U-res-any", "P", Login{}},
		{"webshare", "", "U-us-city_los_angeles-1234", "P", Login{Country: "US", Session: "1234"}},
		{"webshare", "", "U-us-fr-de-rotate", "P", Login{Country: "US"}},
		{"webshare", "", "U-1234", "P", Login{Session: "1234"}},
		{"infatica", "", "U_c_US_sd_1906_city_New-York_s_abc_ttl_30m_rotm_2", "P", Login{Country: "US", Session: "abc", TTL: 30 * time.Minute, Strict: true}},
		{"infatica", "", "U_c_US_s_abc_rotm_0", "P", Login{Country: "US", Session: "abc"}},
		{"rayobyte", "", "U", "P-country-US-region-X-city-Y-session-abc", Login{Country: "US", Session: "abc"}},
		{"proxyrack", "", "U;country=US;city=Seattle,NewYork;isp=Comcast;osName=Linux;session=7f3a-41;refreshMinutes=10;proxyIp=192.0.2.7", "P", Login{Country: "US", Session: "7f3a-41", TTL: 10 * time.Minute}},
		{"evomi", "", "U", "P_country-US_city-boston_session-abc123_lifetime-30_mode-speed", Login{Country: "US", Session: "abc123", TTL: 30 * time.Minute}},
		{"evomi", "", "U", "P_country-UnitedStates_hardsession-abc123", Login{Country: "US", Session: "abc123"}},
		{"dataimpulse", "", "U__cr.us;state.x;city.y;sessid.123;sessttl.60", "P", Login{Country: "US", Session: "123", TTL: time.Hour}},
	} {
		account, known := test.account, providers[test.provider]
		if account == "" {
			account = "U"
		}
		got, ok := known.decode(account, "P", test.user, test.pass)
		if wrong := test.pass == ""; ok == wrong || ok && got != test.want {
			t.Errorf("%s: %s : %s is %+v, %t; want %+v", test.provider, test.user, test.pass, got, ok, test.want)
		}
	}
}

func TestMalformedLogins(t *testing.T) {
	for _, test := range []struct{ provider, user, pass string }{
		{"packetstream", "U", "Q_country-UnitedStates"},
		{"packetstream", "U2", "P_country-UnitedStates"},
		{"packetstream", "U", "P_country-US"},
		{"packetstream", "U", "P_country-UnitedStates_session-abc"},
		{"packetstream", "U", "P_session-abcd1234_"},
		{"packetstream", "U", "Pcountry-UnitedStates"},
		{"packetstream", "U_country-UnitedStates", "P"},
		{"brightdata", "brd-customer-U-country-US", "P"},
		{"brightdata", "brd-customer-U-country-us-session", "P"},
		{"brightdata", "brd-customer-U-session-a*b", "P"},
		{"brightdata", "brd-customer-U-const", "P"},
		{"brightdata", "U-country-us", "P"},
		{"oxylabs", "customer-U-country-US", "P"},
		{"oxylabs", "U-cc-US", "P"},
		{"oxylabs", "customer-U-cc-US-sesstime-1441", "P"},
		{"decodo", "U-country-us", "P"},
		{"decodo", "user-U-country-US", "P"},
		{"decodo", "user-U-sessionduration-0", "P"},
		{"iproyal", "U", "P_session-ab12cd3"},
		{"iproyal", "U", "P_lifetime-30"},
		{"iproyal", "U", "P_lifetime-8d"},
		{"iproyal", "U", "P_lifetime-1h30m"},
		{"iproyal", "U", "P_country-US"},
		{"soax", "package-U-country-us-sessionlength-86401", "P"},
		{"soax", "package-U-region-", "P"},
		{"netnut", "U-res-gb", "P"},
		{"netnut", "U-sid-917244575", "P"},
		{"netnut", "U-res_sc-nl", "P"},
		{"webshare", "U-1234-us", "P"},
		{"webshare", "U-city_paris", "P"},
		{"webshare", "U-us-abc1", "P"},
		{"webshare", "Uus", "P"},
		{"infatica", "U_c_us", "P"},
		{"infatica", "U_c_US_rotm_3", "P"},
		{"infatica", "U_ttl_30d", "P"},
		{"rayobyte", "U", "P-country-us"},
		{"proxyrack", "U;country=us", "P"},
		{"proxyrack", "U;country=US;", "P"},
		{"evomi", "U", "P_session-abc"},
		{"evomi", "U", "P_country-Nowhere"},
		{"evomi", "U", "P_hardsession-abc123_lifetime-30"},
		{"evomi", "U", "P_lifetime-121"},
		{"dataimpulse", "U__cr.US", "P"},
		{"dataimpulse", "U;cr.us", "P"},
		{"dataimpulse", "U__", "P"},
	} {
		if got, ok := providers[test.provider].decode("U", "P", test.user, test.pass); ok {
			t.Errorf("%s: %s : %s is taken for %+v", test.provider, test.user, test.pass, got)
		}
	}
}

func TestUnknownProvider(t *testing.T) {
	if _, err := Start(Options{Provider: "nobody"}); err == nil || !strings.Contains(err.Error(), `there is no provider "nobody"`) {
		t.Errorf("got %v", err)
	}
}

// The provider's syntax is read on every way in, and a malformed login costs a
// 407.
func TestProviderOverTheWire(t *testing.T) {
	site := serve(t, func(http.ResponseWriter, *http.Request) {})
	for _, name := range Providers() {
		var last Request
		g := start(t, Options{Provider: name, Username: "U", Password: "P", Fault: func(r Request) Fault {
			last = r
			return Fault{}
		}})
		if status, _, err := get(t, client(t, withLogin(g.URL(), "U", "wrong"), nil), site.URL); status != 407 || err != nil {
			t.Errorf("%s: a wrong password is answered %d, %v", name, status, err)
		}
		if _, _, err := get(t, client(t, withLogin(g.SOCKSURL(), "U", "wrong"), nil), site.URL); err == nil || !strings.Contains(err.Error(), "authentication failed") {
			t.Errorf("%s: a wrong password over SOCKS: %v", name, err)
		}
		if seen := g.Stats(); len(seen.Requests) != 0 || seen.Refused != 2 {
			t.Errorf("%s: %+v", name, seen)
		}
		if last.Method != "" {
			t.Errorf("%s: a refused request was let through: %+v", name, last)
		}
	}
	var sessions []string
	g := start(t, Options{Provider: "iproyal", Username: "U", Password: "P", Fault: func(r Request) Fault {
		sessions = append(sessions, r.Method+" "+r.Login.Country+" "+r.Login.Session)
		return Fault{}
	}})
	for _, base := range []string{g.URL(), g.SOCKSURL()} {
		if _, _, err := get(t, client(t, withLogin(base, "U", "P_country-us_session-ab12cd34"), nil), site.URL); err != nil {
			t.Error(err)
		}
	}
	if got := strings.Join(sessions, ", "); got != "GET US ab12cd34, SOCKS US ab12cd34" {
		t.Errorf("got %s", got)
	}
}
