package proxy

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"semel/storage"
)

// The answers that providers document, as proxies.md §1.2 lists them, typed by
// hand. A provider of "" is a gateway of the user's own.
func TestAnswers(t *testing.T) {
	const (
		auth, quota, limited, denied = storage.CategoryProxyAuth, storage.CategoryProxyQuota, storage.CategoryProxyLimited, storage.CategoryProxyDenied
		noExit, lost, connect, dns   = storage.CategoryExitUnavailable, storage.CategorySessionLost, storage.CategoryExitConnect, storage.CategoryDNS
	)
	for _, test := range []struct {
		provider string
		status   int
		sign     string // "code …", "status …" (of Proxy-Status), "described …", "squid …", "reason …" or "body …"
		worked   bool
		want     storage.Category
	}{
		{"brightdata", 400, "code client_10060", false, noExit},
		{"brightdata", 400, "code client_10061", true, noExit},
		{"brightdata", 400, "code client_10062", false, noExit},
		{"brightdata", 401, "code client_10050", false, auth},
		{"brightdata", 402, "code policy_20130", false, denied},
		{"brightdata", 402, "code policy_20140", false, denied},
		{"brightdata", 403, "code policy_20050", false, denied},
		{"brightdata", 403, "code kyc_required", false, denied},
		{"brightdata", 403, "code client_10250", false, denied},
		{"brightdata", 403, "code client_10260", false, denied},
		{"brightdata", 407, "code client_10000", false, auth},
		{"brightdata", 407, "code client_10001", false, auth},
		{"brightdata", 407, "code client_10002", false, auth},
		{"brightdata", 407, "code client_10010", false, auth},
		{"brightdata", 407, "code client_10020", false, quota},
		{"brightdata", 407, "code client_10030", false, auth},
		{"brightdata", 407, "code client_10040", false, auth},
		{"brightdata", 408, "code peer_30040", true, connect},
		{"brightdata", 429, "code client_10110", false, limited},
		{"brightdata", 429, "code policy_20220", false, limited},
		{"brightdata", 429, "code policy_20223", false, limited},
		{"brightdata", 499, "code client_10140", false, connect},
		{"brightdata", 502, "code client_10100", true, quota},
		{"brightdata", 502, "code peer_30030", true, noExit},
		{"brightdata", 502, "code policy_20070", true, denied},
		{"brightdata", 502, "code target_40001", true, dns},
		{"brightdata", 502, "code target_40011", true, dns},
		{"brightdata", 502, "code target_40020", true, connect},
		{"brightdata", 502, "code target_40021", true, connect},
		{"brightdata", 502, "code server_error: Failed to establish connection with peer", true, lost},
		{"brightdata", 502, "code server_error: Failed to establish connection with peer", false, connect},
		{"brightdata", 502, "code something_new", true, lost},
		{"brightdata", 400, "code something_new", false, denied},
		{"brightdata", 200, "code client_10000: wrong login", false, auth},
		{"brightdata", 200, "code client_10020", false, quota},
		{"brightdata", 200, "code policy_20220", false, limited},
		{"brightdata", 200, "code something_new", false, connect},
		{"brightdata", 502, `status brd; error=proxy_internal_error; details="client_10100: usage limit"`, true, quota},
		{"brightdata", 407, `status brd; error=http_request_error; details="client_10020: suspended"`, false, quota},
		{"brightdata", 502, `status brd; error=dns_error; details="target_40001: no such name"`, true, dns},
		{"brightdata", 407, "", false, auth},
		{"brightdata", 402, "", false, quota},

		{"oxylabs", 400, "described Bad request", false, denied},
		{"oxylabs", 403, "described Restricted target", false, denied},
		{"oxylabs", 407, "described Authentication failed", false, auth},
		{"oxylabs", 407, "described Traffic limit reached", false, quota},
		{"oxylabs", 407, "reason Traffic limit reached", false, quota},
		{"oxylabs", 407, "body your traffic limit was reached", false, quota},
		{"oxylabs", 407, "", false, auth},
		{"oxylabs", 429, "", false, limited},
		{"oxylabs", 500, "described Internal error", false, connect},
		{"oxylabs", 502, "described Session failed, start a new session", false, lost},
		{"oxylabs", 502, "described Exit node not found (session ended)", false, lost},
		{"oxylabs", 502, "described Invalid response", false, connect},
		{"oxylabs", 502, "described Client disconnected", true, lost},
		{"oxylabs", 504, "described Target unreachable", true, connect},
		{"oxylabs", 522, "described Invalid response", true, connect},
		{"oxylabs", 525, "", true, noExit},

		{"iproyal", 500, "", false, connect},
		{"iproyal", 503, "", false, noExit},
		{"iproyal", 504, "", true, connect},
		{"iproyal", 407, "", false, auth},

		{"dataimpulse", 400, "", false, denied},
		{"dataimpulse", 403, "reason PORT_BLOCKED", false, denied},
		{"dataimpulse", 403, "reason SITE_PERMANENTLY_BLOCKED", false, denied},
		{"dataimpulse", 403, "body HOST_BLOCKED", false, denied},
		{"dataimpulse", 407, "reason NO_USER", false, auth},
		{"dataimpulse", 407, "body USER_BLOCKED", false, auth},
		{"dataimpulse", 407, "reason TRAFFIC_EXHAUSTED", false, quota},
		{"dataimpulse", 407, "body error: TRAFFIC_EXHAUSTED", false, quota},
		{"dataimpulse", 407, "reason THREADS_EXHAUSTED", false, limited},
		{"dataimpulse", 407, "body THREADS_EXHAUSTED", false, limited},
		{"dataimpulse", 407, "reason PORT_NOT_ALLOWED", false, denied},
		{"dataimpulse", 500, "", false, connect},
		{"dataimpulse", 502, "reason NO_HOST_CONNECTION", true, connect},
		{"dataimpulse", 503, "reason NO_RAY", false, noExit},
		{"dataimpulse", 503, "body NO_RAY", false, noExit},
		{"dataimpulse", 503, "", false, connect},

		{"netnut", 403, "", false, denied},
		{"netnut", 407, "", false, auth},
		{"netnut", 490, "", false, noExit},
		{"netnut", 500, "", false, connect},
		{"netnut", 502, "", true, lost},
		{"netnut", 502, "", false, connect},
		{"netnut", 503, "", true, connect},
		{"netnut", 522, "", true, connect},

		{"", 407, "code client_10020", false, quota},
		{"", 407, "body TRAFFIC_EXHAUSTED", false, quota},
		{"", 407, "described Traffic limit reached", false, quota},
		{"", 503, "", false, connect},
		{"", 407, "body wrong_customer_credentials", false, auth}, // anyIP
		{"", 525, "", false, noExit},                              // Nimble
		{"", 407, "", false, auth},
		{"", 401, "reason Unauthorized", false, auth}, // tinyproxy
		{"", 500, "reason Unable to connect", false, connect},
		{"", 403, "squid ERR_ACCESS_DENIED 0", false, denied},
		{"", 407, "squid ERR_CACHE_ACCESS_DENIED 0", false, auth},
		{"", 503, "squid ERR_CONNECT_FAIL 111", false, connect},
		{"", 503, "squid ERR_DNS_FAIL 0", false, dns},
		{"", 500, "squid ERR_CANNOT_FORWARD 0", false, connect},
		{"", 502, "squid ERR_READ_ERROR 0", false, connect},
		{"", 402, "", false, quota},
		{"", 408, "", false, connect},
		{"", 429, "", false, limited},
		{"", 499, "", false, connect},
		{"", 599, "", false, connect},
		{"", 302, "", false, denied},

		{"packetstream", 407, "", false, auth},
		{"packetstream", 502, "", false, connect},
		{"packetstream", 502, "", true, lost},
		{"packetstream", 503, "", false, connect},
		{"soax", 418, "", false, denied},
	} {
		t.Run(fmt.Sprint(test.provider, test.status, test.sign, test.worked), func(t *testing.T) {
			spec := Spec{Provider: test.provider}
			if test.provider == "" {
				spec.URL = "http://gw.example"
			}
			a := answer(t, test.status, test.sign)
			a.Worked = test.worked
			if got := mustEndpoint(t, mustNew(t, spec), Exit{}).Classify(a); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

// answer makes an Answer with a sign as in TestAnswers.
func answer(t *testing.T, status int, sign string) Answer {
	t.Helper()
	a := Answer{Status: status, Header: http.Header{}}
	kind, text, _ := strings.Cut(sign, " ")
	switch kind {
	case "":
	case "code":
		a.Header.Set("X-Brd-Err-Code", text)
	case "status":
		a.Header.Set("Proxy-Status", text)
	case "described":
		a.Header.Set("X-Error-Description", text)
	case "squid":
		a.Header.Set("X-Squid-Error", text)
	case "reason":
		a.Reason = text
	case "body":
		a.Body = text
	default:
		t.Fatalf("what is %q?", sign)
	}
	return a
}

func TestSOCKSAnswers(t *testing.T) {
	for _, test := range []struct {
		reply  int
		worked bool
		want   storage.Category
	}{
		{-1, false, storage.CategoryProxyAuth},
		{0, false, storage.CategoryProxyUnreachable},
		{1, true, storage.CategoryExitUnavailable},
		{2, false, storage.CategoryProxyDenied},
		{3, false, storage.CategoryExitConnect},
		{4, true, storage.CategorySessionLost},
		{5, false, storage.CategoryExitConnect},
		{5, true, storage.CategorySessionLost},
		{6, false, storage.CategoryExitUnavailable},
		{7, true, storage.CategoryProxyUnreachable},
		{8, false, storage.CategoryProxyUnreachable},
	} {
		got := (Endpoint{}).Classify(Answer{SOCKS: true, Status: test.reply, Worked: test.worked})
		if got != test.want {
			t.Errorf("%d, worked %t: got %s, want %s", test.reply, test.worked, got, test.want)
		}
	}
}

// A provider's words mean something at its own gateway only, and only where an
// explanation would stand.
func TestSignsElsewhere(t *testing.T) {
	dataimpulse := mustEndpoint(t, mustNew(t, Spec{Provider: "dataimpulse"}), Exit{})
	iproyal := mustEndpoint(t, mustNew(t, Spec{Provider: "iproyal"}), Exit{})
	a := Answer{Status: 407, Reason: "TRAFFIC_EXHAUSTED"}
	if got := iproyal.Classify(a); got != storage.CategoryProxyAuth {
		t.Errorf("IPRoyal: %s", got)
	}
	if got := (Endpoint{}).Classify(a); got != storage.CategoryProxyQuota {
		t.Errorf("anybody's: %s", got)
	}
	a = Answer{Status: 407, Body: strings.Repeat("x", explanation) + " TRAFFIC_EXHAUSTED"}
	if got := dataimpulse.Classify(a); got != storage.CategoryProxyAuth {
		t.Errorf("far down: %s", got)
	}
}

func TestCode(t *testing.T) {
	long := strings.Repeat("ä", shownLimit)
	filler := strings.Repeat("x", shownLimit-5)
	for _, test := range []struct {
		provider string
		header   http.Header
		want     string
	}{
		{"brightdata", http.Header{"X-Brd-Error": {"b"}, "X-Brd-Err-Code": {" a "}}, "a"},
		{"brightdata", http.Header{"X-Brd-Err-Code": {" "}, "X-Brd-Err-Msg": {"c"}}, "c"},
		{"brightdata", http.Header{"X-Error-Description": {"a site's own"}}, ""},
		{"oxylabs", http.Header{"X-Error-Description": {"d"}}, "d"},
		{"oxylabs", http.Header{"X-Brd-Error": {"a site's own"}}, ""},
		{"iproyal", http.Header{"X-Brd-Error": {"a"}, "X-Error-Description": {"b"}}, ""},
		{"iproyal", http.Header{"X-Squid-Error": {"ERR"}}, "ERR"},
		{"", http.Header{"X-Brd-Error": {"a"}}, "a"},
		{"", http.Header{"X-Error-Description": {"b"}}, "b"},
		{"", http.Header{"Proxy-Status": {"cdn; hit", `gw; error=dns_error; details="peer_30030: none"`}}, "peer_30030"},
		{"", http.Header{"Proxy-Status": {"gw; error=dns_error"}}, "dns_error"},
		{"", http.Header{"Proxy-Status": {"cdn; hit"}}, ""},
		{"", http.Header{"X-Squid-Error": {long}}, long[:shownLimit]},
		{"", http.Header{"X-Squid-Error": {"\xff"}}, "?"},
		{"", http.Header{"X-Squid-Error": {filler + testUser}}, filler + "[reda"},
		{"", http.Header{"Proxy-Status": {`gw; error=x; details="` + filler[:59] + testUser + `"`}}, filler[:59] + "[reda"},
		{"", nil, ""},
	} {
		spec := Spec{Provider: test.provider}
		if test.provider == "" {
			spec.URL = "http://gw.example"
		}
		if got := mustEndpoint(t, mustNew(t, spec), Exit{}).Code(test.header); got != test.want {
			t.Errorf("%s, %v: got %q, want %q", test.provider, test.header, got, test.want)
		}
	}
}
