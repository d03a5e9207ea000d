package address

import (
	"net/netip"
	"testing"
)

func TestPrivateIP(t *testing.T) {
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
		if got := privateIP(netip.MustParseAddr(test.ip)); got != test.want {
			t.Errorf("privateIP(%s) = %t", test.ip, got)
		}
	}
}

func TestPrivateHost(t *testing.T) {
	for host, want := range map[string]bool{
		"example.com": false, "8.8.8.8": false, "localhost.example.com": false, "1.2.3.4.5": false, "": false,
		"0b1.example": false, "10": true, "1_0.0.0.1": false, "+10.0.0.1": false, "256.0.0.1": false,
		"localhost": true, "LOCALHOST.": true, "a.localhost": true, "metadata.google.internal": true,
		"127.0.0.1": true, "127.0.0.1.": true, "127.1": true, "0x7f000001": true, "2130706433": true, "017700000001": true,
		"0x7f.1": true, "127.0.1": true, "0X7F.0.0.1": true, "0300.0250.1.1": true, "::1": true, "::ffff:10.0.0.1": true,
		"169.254.169.254": true, "134744072": false, // 8.8.8.8
	} {
		if got := privateHost(host); got != want {
			t.Errorf("privateHost(%q) = %t", host, got)
		}
	}
}

func TestPrivateAddress(t *testing.T) {
	for address, want := range map[string]bool{
		"8.8.8.8:443": false, "[2606:4700::1111]:80": false,
		"127.0.0.1:80": true, "[::1]:80": true, "8.8.8.8": true, "example.com:80": true, "": true,
	} {
		if got := privateAddress(address); got != want {
			t.Errorf("privateAddress(%q) = %t", address, got)
		}
	}
}
