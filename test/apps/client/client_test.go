package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
)

// requestsPerConn serves any number of requests and counts them by connection.
func requestsPerConn(t *testing.T) (url string, counts func() map[string]int) {
	var mu sync.Mutex
	seen := make(map[string]int)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		seen[r.RemoteAddr]++
		_, _ = io.WriteString(w, "ok")
	}))
	t.Cleanup(server.Close)
	return server.URL, func() map[string]int {
		mu.Lock()
		defer mu.Unlock()
		return seen
	}
}

func get(ctx context.Context, c *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

func TestAConnectionServesAtMostItsShareOfRequests(t *testing.T) {
	for name, c := range map[string]struct {
		most        int // requests per connection; 0 is the default
		requests    int
		connections int // that the requests need
	}{
		"three to a connection": {3, 10, 4},
		"one to a connection":   {1, 5, 5},
		"twenty by default":     {0, 41, 3},
		"no limit":              {-1, 50, 1},
	} {
		t.Run(name, func(t *testing.T) {
			url, counts := requestsPerConn(t)
			client := New(Config{ConnMaxRequests: c.most})
			defer client.CloseIdleConnections()
			for range c.requests {
				if err := get(t.Context(), client, url); err != nil {
					t.Fatal(err)
				}
			}
			if got := counts(); len(got) != c.connections {
				t.Errorf("%d requests took %d connections, want %d: %v",
					c.requests, len(got), c.connections, got)
			}
		})
	}
}

func TestManyRequestsAtOnceAllArrive(t *testing.T) {
	url, counts := requestsPerConn(t)
	client := New(Config{ConnMaxRequests: 5, MaxInFlight: 16})
	defer client.CloseIdleConnections()
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for range 50 {
				if err := get(t.Context(), client, url); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	total := 0
	for conn, n := range counts() {
		total += n
		if n > 5 {
			t.Errorf("connection %s served %d requests, at most 5 wanted", conn, n)
		}
	}
	if total != 16*50 {
		t.Errorf("%d requests arrived, %d were sent", total, 16*50)
	}
}

func TestAPublicAddressIsRefused(t *testing.T) {
	// 192.0.2.1 and 2001:db8::1 are reserved for documentation.
	for _, url := range []string{"http://192.0.2.1/", "http://[2001:db8::1]/", "http://[::ffff:192.0.2.1]/"} {
		err := get(t.Context(), New(Config{}), url)
		if !errors.Is(err, ErrPublicAddress) {
			t.Errorf("%s: error %v, want ErrPublicAddress", url, err)
		}
	}
}

func TestLabAddressesAreAllowed(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1:80":         true,
		"[::1]:80":             true,
		"10.96.0.10:80":        true, // a ClusterIP
		"172.16.0.3:8080":      true,
		"192.168.7.1:80":       true,
		"[fd00::7]:80":         true,
		"169.254.1.1:80":       true,
		"[::ffff:10.0.0.1]:80": true,
		"8.8.8.8:53":           false,
		"[2001:db8::1]:80":     false,
		"no address":           false,
	} {
		if err := refusePublic(t.Context(), "tcp", address, nil); (err == nil) != want {
			t.Errorf("%s: %v, want allowed %v", address, err, want)
		}
	}
}
