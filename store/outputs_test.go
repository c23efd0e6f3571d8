package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"toolfinch/internal/postgres"
)

func name(s string) [32]byte { return sha256.Sum256([]byte(s)) }

func keep(t testing.TB, s *Store, token, owner string, content []byte, now time.Time, ttl time.Duration) {
	t.Helper()
	if err := s.Outputs().Put(context.Background(), name(token), name(owner), content, now, now.Add(ttl)); err != nil {
		t.Fatal(err)
	}
}

func kept(t testing.TB, s *Store, token, owner string, now time.Time) []byte {
	t.Helper()
	content, err := s.Outputs().Find(context.Background(), name(token), name(owner), now)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func rows(t testing.TB, s *Store) (n int) {
	t.Helper()
	if err := s.db.QueryRow(`SELECT count(*) FROM outputs`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestAnOutputIsItsOwnersUntilItExpires(t *testing.T) {
	everywhere(t, func(t *testing.T, s *Store) {
		content := []byte("{\"big\":12345678901234567890,\"f\":1.0}\x00\xff")
		keep(t, s, "token", "owner", content, noon, time.Hour)
		for _, test := range []struct {
			what, token, owner string
			at                 time.Duration
			want               []byte
		}{
			{"at once", "token", "owner", 0, content},
			{"just before the end", "token", "owner", time.Hour - time.Millisecond, content},
			{"at the end", "token", "owner", time.Hour, nil},
			{"another owner", "token", "other", 0, nil},
			{"another token", "tokem", "owner", 0, nil},
		} {
			if got := kept(t, s, test.token, test.owner, noon.Add(test.at)); !bytes.Equal(got, test.want) {
				t.Errorf("%s: got %q, want %q", test.what, got, test.want)
			}
		}
	})
}

func TestExpiredOutputsAreDropped(t *testing.T) {
	everywhere(t, func(t *testing.T, s *Store) {
		keep(t, s, "short", "o", []byte("x"), noon, time.Minute)
		keep(t, s, "long", "o", []byte("x"), noon, time.Hour)
		if n, err := s.Outputs().Drop(t.Context(), noon.Add(time.Minute)); n != 1 || err != nil {
			t.Errorf("dropped %d, %v", n, err)
		}
		if kept(t, s, "long", "o", noon) == nil || rows(t, s) != 1 {
			t.Errorf("%d rows are left", rows(t, s))
		}
		keep(t, s, "later", "o", []byte("x"), noon.Add(time.Hour), time.Minute)
		if rows(t, s) != 1 {
			t.Errorf("%d rows after another was put, want that one", rows(t, s))
		}
	})
}

func TestAllThatExpiredIsDroppedHoweverMany(t *testing.T) {
	everywhere(t, func(t *testing.T, s *Store) {
		const n = 2*dropAtOnce + 5
		for i := range n {
			keep(t, s, string(rune('a'+i)), "o", []byte("x"), noon, time.Minute)
		}
		if dropped, err := s.Outputs().Drop(t.Context(), noon.Add(time.Hour)); dropped != n || err != nil || rows(t, s) != 0 {
			t.Errorf("dropped %d of %d, %v; %d rows are left", dropped, n, err, rows(t, s))
		}
	})
}

func TestOfTooManyOutputsTheOldestGo(t *testing.T) {
	// size stands for content: nobody wants to write half a gigabyte.
	fill := func(t *testing.T, s *Store, n, size, owners int) {
		t.Helper()
		own, i := name("o"), 0
		err := s.write(t.Context(), func(ctx context.Context, tx *txn) error {
			return tx.insert(ctx, "outputs", []string{"token", "owner", "expires_at", "size", "content"}, func() ([]any, error) {
				if i == n {
					return nil, nil
				}
				owner := own[:]
				if owners > 1 {
					owner = fmt.Append(nil, "o", i%owners)
				}
				i++
				return []any{fmt.Appendf(nil, "%032d", i-1), owner, noon.Add(time.Hour).UnixMilli(), int64(size), []byte{}}, nil
			})
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	first := func(t *testing.T, s *Store) string {
		t.Helper()
		var token []byte
		if err := s.db.QueryRow(`SELECT token FROM outputs ORDER BY id LIMIT 1`).Scan(&token); err != nil {
			t.Fatal(err)
		}
		return strings.TrimLeft(string(token), "0")
	}
	for _, test := range []struct {
		what            string
		n, size, owners int
		left            int    // with the new one
		first           string // the oldest of them
	}{
		{"an owner's bytes", 10, 8 << 20, 1, 8, "3"},
		{"an owner's rows", 1003, 1, 1, 1000, "4"},
		{"all bytes", 40, 16 << 20, 40, 32, "9"},
		{"all rows", 10_005, 1, 100, 10_000, "6"},
	} {
		t.Run(test.what, func(t *testing.T) {
			everywhere(t, func(t *testing.T, s *Store) {
				fill(t, s, test.n, test.size, test.owners)
				keep(t, s, "new", "o", []byte("x"), noon, time.Hour)
				if n, oldest := rows(t, s), first(t, s); n != test.left || oldest != test.first {
					t.Errorf("%d rows from %s on, want %d from %s on", n, oldest, test.left, test.first)
				}
				if kept(t, s, "new", "o", noon) == nil {
					t.Error("the new one is gone")
				}
			})
		})
	}
}

// A call waits for its result to be kept, and not for who stores a long list, nor for who makes room.
func TestAnOutputWaitsForNobody(t *testing.T) {
	url := postgres.Start(t)
	s, other := open(t, url), open(t, url)
	err := other.write(t.Context(), func(ctx context.Context, tx *txn) error {
		if _, err := tx.ExecContext(ctx, `SELECT pg_advisory_xact_lock($1)`, other.remote.lockKey(roomLock)); err != nil {
			return err
		}
		return s.Outputs().Put(ctx, name("t"), name("o"), []byte("x"), noon, noon.Add(time.Hour))
	})
	if err != nil || kept(t, s, "t", "o", noon) == nil {
		t.Errorf("it is not kept: %v", err)
	}
}

func TestAnOutputThatIsTooLargeIsAnError(t *testing.T) {
	everywhere(t, func(t *testing.T, s *Store) {
		err := s.Outputs().Put(t.Context(), name("t"), name("o"), make([]byte, maxOwnOutputs+1), noon, noon.Add(time.Hour))
		if err == nil || rows(t, s) != 0 {
			t.Errorf("error %v, %d rows", err, rows(t, s))
		}
	})
}

func TestADroppedOutputLeavesNoTraceInTheFile(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("SQLite lets nobody else read its file here")
	}
	dir := t.TempDir()
	s := open(t, dir)
	keep(t, s, "t", "o", bytes.Repeat([]byte("the secret of it "), 5000), noon, time.Minute)
	if _, err := s.Outputs().Drop(t.Context(), noon.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil { // moves the log into the file
		t.Fatal(err)
	}
	file := filepath.Join(dir, fileName)
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(content, []byte("secret of it")) {
		t.Error("it is still there")
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

func TestOutputsOfAClosedStoreAreErrors(t *testing.T) {
	s := open(t, t.TempDir())
	s.Close()
	if err := s.Outputs().Put(t.Context(), name("t"), name("o"), nil, noon, noon); err == nil {
		t.Error("put")
	}
	if _, err := s.Outputs().Find(t.Context(), name("t"), name("o"), noon); err == nil {
		t.Error("read")
	}
	if _, err := s.Outputs().Drop(t.Context(), noon); err == nil {
		t.Error("drop")
	}
}

func BenchmarkPutOutput(b *testing.B) {
	s := open(b, b.TempDir())
	content := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	b.SetBytes(int64(len(content)))
	for i := 0; b.Loop(); i++ {
		token := sha256.Sum256([]byte{byte(i), byte(i >> 8), byte(i >> 16)})
		if err := s.Outputs().Put(b.Context(), token, name("o"), content, noon, noon.Add(time.Hour)); err != nil {
			b.Fatal(err)
		}
	}
}
