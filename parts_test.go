package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/md5"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// partUser and partPassword are the login that the real proxies ask for.
const partUser, partPassword = "lemur", "ocelot-7431"

// freePort is a port that nobody listens on, of those that systems do not give
// out themselves (on Linux from 32768): one of these could be another test's
// before the part listens there.
func freePort(t *testing.T) int {
	t.Helper()
	for range 100 {
		port := 20_000 + mathrand.IntN(12_000)
		if l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port)); err == nil {
			l.Close()
			return port
		}
	}
	t.Fatal("there is no free port")
	return 0
}

// startPart runs a server in the foreground until the test ends, and waits
// until it listens.
func startPart(t *testing.T, port int, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(name, args...)
	log, err := os.Create(filepath.Join(t.TempDir(), filepath.Base(name)+".out"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(5 * time.Second):
			_ = cmd.Process.Kill()
			<-ended
		}
		log.Close()
	})
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if c, err := net.Dial("tcp", "127.0.0.1:"+strconv.Itoa(port)); err == nil {
			c.Close()
			return
		}
		select {
		case <-tick.C:
		case <-ended:
			text, _ := os.ReadFile(log.Name())
			t.Fatalf("%s ended at once:\n%s", name, text)
		case <-deadline:
			text, _ := os.ReadFile(log.Name())
			t.Fatalf("%s does not listen:\n%s", name, text)
		}
	}
}

// partDir is a folder that servers which drop root can use, too.
func partDir(t *testing.T, owner string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "semel-part-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if u, err := user.Lookup(owner); err == nil && os.Getuid() == 0 {
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		if err := os.Chown(dir, uid, gid); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func writeFile(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// website is nginx over a folder.
type website struct {
	HTTP, HTTPS string // base URLs
	CA          string // file with the certificate of HTTPS
}

func startNginx(t *testing.T, root string) website {
	t.Helper()
	dir, plain, secure := partDir(t, "root"), freePort(t), freePort(t)
	cert, key := selfSigned(t, dir)
	conf := writeFile(t, filepath.Join(dir, "nginx.conf"), fmt.Sprintf(`
daemon off; master_process off; pid %[1]s/pid; error_log %[1]s/error.log;
events { worker_connections 512; }
http {
	access_log off; default_type text/html; types { text/html html; }
	client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy; fastcgi_temp_path %[1]s/fcgi;
	uwsgi_temp_path %[1]s/uwsgi; scgi_temp_path %[1]s/scgi;
	gzip on; gzip_types text/html;
	server {
		listen 127.0.0.1:%[2]d;
		listen 127.0.0.1:%[3]d ssl;
		ssl_certificate %[4]s; ssl_certificate_key %[5]s;
		root %[6]s;
	}
}
`, dir, plain, secure, cert, key, root))
	startPart(t, plain, "nginx", "-p", dir, "-c", conf, "-e", filepath.Join(dir, "start.log"))
	return website{HTTP: fmt.Sprintf("http://127.0.0.1:%d", plain), HTTPS: fmt.Sprintf("https://127.0.0.1:%d", secure), CA: cert}
}

func selfSigned(t *testing.T, dir string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "semel test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	encode := func(kind string, b []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}))
	}
	return writeFile(t, filepath.Join(dir, "cert.pem"), encode("CERTIFICATE", der)),
		writeFile(t, filepath.Join(dir, "key.pem"), encode("PRIVATE KEY", secret))
}

// startTinyproxy gives the URL of a tinyproxy with a login.
func startTinyproxy(t *testing.T) string {
	t.Helper()
	dir, port := partDir(t, "nobody"), freePort(t)
	conf := writeFile(t, filepath.Join(dir, "tinyproxy.conf"), fmt.Sprintf(
		"Port %d\nListen 127.0.0.1\nAllow 127.0.0.1\nTimeout 60\nMaxClients 200\nBasicAuth %s %s\nLogFile %q\nPidFile %q\n",
		port, partUser, partPassword, dir+"/log", dir+"/pid"))
	startPart(t, port, "tinyproxy", "-d", "-c", conf)
	return fmt.Sprintf("http://127.0.0.1:%d", port)
}

// startSquid gives the URL of a squid with a login, and its access log: a line
// of "bytes from the client, bytes to the client" for each connection's request.
func startSquid(t *testing.T) (proxy, log string) {
	t.Helper()
	dir, port := partDir(t, "proxy"), freePort(t)
	passwords := writeFile(t, filepath.Join(dir, "passwords"), fmt.Sprintf("%s:%x\n", partUser, md5.Sum([]byte(partPassword))))
	log = filepath.Join(dir, "access.log")
	conf := writeFile(t, filepath.Join(dir, "squid.conf"), fmt.Sprintf(`
http_port 127.0.0.1:%[1]d
pid_filename %[2]s/pid
cache_log %[2]s/cache.log
coredump_dir %[2]s
logformat bytes %%>st %%<st
access_log stdio:%[3]s bytes
buffered_logs off
cache deny all
visible_hostname squid.test
shutdown_lifetime 1 seconds
auth_param basic program /usr/lib/squid/basic_ncsa_auth %[4]s
acl known proxy_auth REQUIRED
http_access allow known
http_access deny all
`, port, dir, log, passwords))
	startPart(t, port, "squid", "-N", "-f", conf)
	return fmt.Sprintf("http://127.0.0.1:%d", port), log
}

// startMicrosocks gives the URL of a SOCKS5 proxy with a login.
func startMicrosocks(t *testing.T) string {
	t.Helper()
	port := freePort(t)
	startPart(t, port, "microsocks", "-i", "127.0.0.1", "-p", strconv.Itoa(port), "-u", partUser, "-P", partPassword)
	return fmt.Sprintf("socks5://127.0.0.1:%d", port)
}
