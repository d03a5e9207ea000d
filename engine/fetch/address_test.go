package fetch

import (
	"net/http"
	"net/netip"
	"net/url"
	"testing"

	"semel/engine/gateway"
)

func mustParse(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestDeniedIP(t *testing.T) {
	tests := []struct {
		ip   string
		want bool
	}{
		{"8.8.8.8", false}, {"93.184.216.34", false}, {"172.32.0.1", false}, {"100.63.255.255", false},
		{"2606:4700::1111", false}, {"2a00:1450:4001::1", false},
		{"::ffff:8.8.8.8", false}, {"64:ff9b::808:808", false}, {"2002:808:808::1", false},

		{"0.0.0.0", true}, {"0.1.2.3", true}, {"127.0.0.1", true}, {"127.255.0.1", true},
		{"10.0.0.1", true}, {"172.16.0.1", true}, {"192.168.1.1", true}, {"100.64.0.1", true}, {"100.100.100.200", true},
		{"169.254.169.254", true}, {"168.63.129.16", true}, {"192.0.0.192", true}, {"198.18.0.1", true},
		{"224.0.0.1", true}, {"239.1.1.1", true}, {"240.0.0.1", true}, {"255.255.255.255", true},
		{"::", true}, {"::1", true}, {"fe80::1", true}, {"fe80::1%eth0", true}, {"fc00::1", true}, {"fd00:ec2::254", true},
		{"fec0::1", true}, {"ff02::1", true}, {"2001:db8::1", true}, {"2001::1", true}, {"100::1", true},
		{"::ffff:127.0.0.1", true}, {"::ffff:10.0.0.1", true}, {"::127.0.0.1", true},
		{"64:ff9b::7f00:1", true}, {"64:ff9b::a00:1", true}, {"64:ff9b:1::808:808", true}, {"2002:7f00:1::1", true},
		{"2002:a9fe:a9fe::1", true},
	}
	for _, test := range tests {
		if got := deniedIP(netip.MustParseAddr(test.ip)); got != test.want {
			t.Errorf("deniedIP(%s) = %t", test.ip, got)
		}
	}
}

func TestDeniedHost(t *testing.T) {
	for host, want := range map[string]bool{
		"example.com": false, "8.8.8.8": false, "localhost.example.com": false, "1.2.3.4.5": false, "": false,
		"0b1.example": false, "10": true, "1_0.0.0.1": false, "+10.0.0.1": false, "256.0.0.1": false,
		"localhost": true, "LOCALHOST.": true, "a.localhost": true, "metadata.google.internal": true,
		"127.0.0.1": true, "127.0.0.1.": true, "127.1": true, "0x7f000001": true, "2130706433": true, "017700000001": true,
		"0x7f.1": true, "127.0.1": true, "0X7F.0.0.1": true, "0300.0250.1.1": true, "::1": true, "::ffff:10.0.0.1": true,
		"169.254.169.254": true, "134744072": false, // 8.8.8.8
	} {
		if got := deniedHost(host); got != want {
			t.Errorf("deniedHost(%q) = %t", host, got)
		}
	}
}

func TestDeniedAddress(t *testing.T) {
	for address, want := range map[string]bool{
		"8.8.8.8:443": false, "[2606:4700::1111]:80": false,
		"127.0.0.1:80": true, "[::1]:80": true, "8.8.8.8": true, "example.com:80": true, "": true,
	} {
		if got := deniedAddress(address); got != want {
			t.Errorf("deniedAddress(%q) = %t", address, got)
		}
	}
}

func TestPrivateAddressesAreRefused(t *testing.T) {
	hits := 0
	site := serve(t, func(http.ResponseWriter, *http.Request) { hits++ })
	g := startGateway(t, gateway.Options{})
	port := mustParse(t, site.URL).Port()
	for name, opts := range map[string]Options{
		"direct":          {},
		"through a proxy": {Endpoint: endpointOf(t, g.URL())},
	} {
		t.Run(name, func(t *testing.T) {
			s := NewSession(opts)
			t.Cleanup(s.Close)
			for _, host := range []string{"127.0.0.1", "localhost", "127.1", "2130706433", "[::1]", "[::ffff:127.0.0.1]"} {
				_, trace, err := get(t, s, "http://"+host+":"+port+"/")
				wantError(t, err, ErrAddressDenied)
				if trace.BytesUp != 0 {
					t.Errorf("%s: bytes were sent", host)
				}
			}
		})
	}
	if hits != 0 || len(g.Stats().Requests) != 0 {
		t.Errorf("site had %d requests, gateway %v", hits, g.Stats().Requests)
	}
}

func TestAddressIsCheckedAsDialed(t *testing.T) {
	// A name says nothing: what counts is where it leads. Behind the check of
	// hosts there is the one of the dialed address.
	hits := 0
	site := serve(t, func(http.ResponseWriter, *http.Request) { hits++ })
	s := NewSession(Options{})
	t.Cleanup(s.Close)
	a, err := s.newAttempt(t.Context(), Request{URL: site.URL})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.dial(withAttempt(a.ctx, a), "tcp", mustParse(t, site.URL).Host)
	wantError(t, err, ErrAddressDenied)
	a.seal()
	if hits != 0 {
		t.Error("the site was reached")
	}
}

func TestProxyOnPrivateAddressMayBeUsed(t *testing.T) {
	site := serve(t, func(http.ResponseWriter, *http.Request) {})
	g := startGateway(t, gateway.Options{Dial: dialTo(site)})
	s := NewSession(Options{Endpoint: endpointOf(t, g.URL())})
	t.Cleanup(s.Close)
	if _, _, err := get(t, s, "http://public.example/"); err != nil {
		t.Fatal(err)
	}
}
