package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"
)

// startShell serves a shell on loopback, and connects to it.
func startShell(t *testing.T) *ssh.Client {
	t.Helper()
	here, there := t.TempDir(), t.TempDir()
	if err := writeShellKeys(here, there); err != nil {
		t.Fatal(err)
	}
	s, err := newShell(there)
	if err != nil {
		t.Fatal(err)
	}
	s.env = []string{"PATH=" + os.Getenv("PATH")}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go s.serve(listener)
	to := netip.MustParseAddrPort(listener.Addr().String())
	client, err := dialShell(t.Context(), to, here)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	others := t.TempDir()
	if err := writeShellKeys(others, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	for what, file := range map[string]string{"client": shellClientKey, "host": shellHostPub} {
		mixed := t.TempDir()
		if err := errors.Join(os.CopyFS(mixed, os.DirFS(here)), os.Remove(filepath.Join(mixed, file)),
			os.Rename(filepath.Join(others, file), filepath.Join(mixed, file))); err != nil {
			t.Fatal(err)
		}
		if c, err := dialShell(t.Context(), to, mixed); err == nil {
			c.Close()
			t.Errorf("any key is taken for the %s's", what)
		}
	}
	return client
}

func TestAShellRunsProgramsWithTheirArgumentsAndCodes(t *testing.T) {
	client := startShell(t)
	for _, c := range []struct {
		args []string
		in   string
		out  string
		code int
	}{
		{[]string{"cat"}, "a\x00b", "a\x00b", 0},
		{[]string{"printf", "%s.", "it's", "$HOME", "a b", "", "*"}, "", "it's.$HOME.a b..*.", 0},
		{[]string{"sh", "-c", "echo out; echo err >&2; exit 7"}, "", "out\n", 7},
		{[]string{"sh", "-c", "kill -9 $$"}, "", "", 128 + 9},
		{[]string{"no-such-program"}, "", "", 127},
	} {
		var out, errs bytes.Buffer
		code, err := runInShell(client, strings.NewReader(c.in), &out, &errs, c.args...)
		if err != nil || code != c.code || out.String() != c.out {
			t.Errorf("%q: code %d, out %q, errors %q, %v; want %d, %q", c.args, code, &out, &errs, err, c.code, c.out)
		}
	}
}

// A program may end before it has read what the client sends, and the client may not send anything.
func TestAProgramEndsThoughItsInputDoesNot(t *testing.T) {
	client := startShell(t)
	done := make(chan error, 1)
	session, err := client.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	in, err := session.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	go func() { done <- session.Run("exec true") }()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Error("the session waits for its input")
	}
}

// A program ends with its session, and with the connection of its session.
func TestWhatAClientStartedEndsWithIt(t *testing.T) {
	for _, what := range []string{"session", "connection"} {
		t.Run(what, func(t *testing.T) {
			client := startShell(t)
			session, err := client.NewSession()
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(t.TempDir(), "pid")
			if err := session.Start("sleep 3600 & echo $! > " + file + "; wait"); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			var pid int
			if err := poll(ctx, 10*time.Millisecond, func() error {
				text, err := os.ReadFile(file)
				if err == nil {
					_, err = fmt.Sscan(string(text), &pid)
				}
				return err
			}); err != nil {
				t.Fatal(err)
			}
			p, _, err := processAt("/proc", pid)
			if err != nil {
				t.Fatal(err)
			}
			if what == "session" {
				session.Close()
			} else {
				client.Close()
			}
			if err := p.gone(ctx); err != nil {
				_ = p.signal(unix.SIGKILL)
				t.Error(err)
			}
		})
	}
}

func TestAShellConnectsToASocket(t *testing.T) {
	client := startShell(t)
	path := filepath.Join(t.TempDir(), "socket")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() { // says back what it got, when the other side has said all
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		all, _ := io.ReadAll(conn)
		_, _ = conn.Write(all)
	}()
	conn, err := client.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, err = conn.Write([]byte("hello"))
	half, ok := conn.(interface{ CloseWrite() error })
	if !ok {
		t.Fatalf("a %T cannot be closed by halves", conn)
	}
	err = errors.Join(err, half.CloseWrite())
	got, err2 := io.ReadAll(conn)
	if errors.Join(err, err2) != nil || string(got) != "hello" {
		t.Errorf("got %q, %v, %v", got, err, err2)
	}
	if _, err := client.Dial("unix", path+"x"); err == nil {
		t.Error("it connects to a socket that is not there")
	}
}
