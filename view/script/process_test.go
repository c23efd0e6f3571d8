package script

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"toolfinch/internal/await"
	"toolfinch/internal/group"
	"toolfinch/internal/must"
)

// processes counts the children of this process that are run by a Sandbox.
func (s *Sandbox) processes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all)
}

func TestASpareIsKeptAndNoneIsLeft(t *testing.T) {
	await.NoLeak(t, func() {
		s := NewSandbox(slog.New(slog.DiscardHandler))
		if s.processes() != 0 {
			t.Error("a process was started before one was asked for")
		}
		s.Ready(true)
		await.True(t, func() bool { return s.processes() == 1 })
		for range 3 {
			if got, err := s.Run(context.Background(), "result = 1", nil, nil, Limits{}, nil); err != nil || string(got) != "1" {
				t.Errorf("%s, %v", got, err)
			}
		}
		await.True(t, func() bool { return s.processes() == 1 })
		s.Ready(false)
		await.True(t, func() bool { return s.processes() == 0 })
		s.Ready(true)
		running := make(chan error, 1)
		go func() {
			_, err := s.Run(context.Background(), "call_tool('wait')", nil, &fakeHost{}, Limits{Calls: 1, Time: time.Hour}, nil)
			running <- err
		}()
		await.True(t, func() bool { return s.processes() == 2 })
		ended := make(chan struct{})
		go func() { s.Close(); close(ended) }()
		await.Value(t, ended)
		if n := s.processes(); n != 0 {
			t.Errorf("%d processes are left", n)
		}
		if _, err := s.Run(context.Background(), "result = 1", nil, nil, Limits{}, nil); !errors.Is(err, errClosed) {
			t.Errorf("error %v", err)
		}
		if err := await.Value(t, running); err == nil {
			t.Error("the script that ran is no error")
		}
	})
}

// Close may come while processes are being started.
func TestCloseWhileProcessesStart(t *testing.T) {
	for range 10 {
		s := NewSandbox(slog.New(slog.DiscardHandler))
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				s.Ready(true)
				_, _ = s.Run(context.Background(), "result = 1", nil, nil, Limits{}, nil)
			})
		}
		s.Close()
		all.Wait()
		if n := s.processes(); n != 0 {
			t.Errorf("%d processes are left", n)
		}
	}
}

// A process is used once: what one script has left, the next does not see.
func TestAProcessIsUsedOnce(t *testing.T) {
	seen := map[int]bool{}
	for range 5 {
		p := must.Get(shared.take())(t)
		if pid := p.cmd.Process.Pid; seen[pid] {
			t.Errorf("process %d is taken twice", pid)
		} else {
			seen[pid] = true
		}
		p.end()
	}
}

func TestASpareThatDiedIsReplaced(t *testing.T) {
	s := NewSandbox(slog.New(slog.DiscardHandler))
	defer s.Close()
	s.Ready(true)
	await.True(t, func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.spare != nil })
	s.spare.end()
	if got, err := s.Run(context.Background(), "result = 1", nil, nil, Limits{}, nil); err != nil || string(got) != "1" {
		t.Errorf("%s, %v", got, err)
	}
}

// Other calls go on while one script is stuck in a single operation.
func TestOthersGoOnBesideAStuckScript(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	stuck, began := make(chan error, 1), make(chan struct{})
	go func() {
		_, err := shared.Run(ctx, "log('on')\nx = any(range(0, 1)) or sorted(range(3000000), key = lambda i: -i)", nil, nil, Limits{Steps: 1 << 50, Time: time.Hour, Memory: 1 << 30}, func(string) { close(began) })
		stuck <- err
	}()
	await.Value(t, began)
	if got, err := runScript("result = 1", Limits{}, nil); err != nil || string(got) != "1" {
		t.Errorf("%s, %v", got, err)
	}
	cancel()
	if err := await.Value(t, stuck); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

// What a process says that was taken over does no harm.
func FuzzSayingsOfAProcess(f *testing.F) {
	f.Add([]byte(`{"Result":1}` + "\n"))
	f.Add([]byte(`{"Ask":[{"Tool":"t","Arguments":{}},{"Search":true,"Limit":-1}]}` + "\n"))
	f.Add([]byte(`{"Ask":[null]}` + "\n"))
	f.Add([]byte(`{"Log":"a"}` + "\n" + `{"Error":{"Host":true}}` + "\n"))
	f.Fuzz(func(t *testing.T, said []byte) {
		var heard strings.Builder
		x := &exchange{process: &process{messages: group.NewMessages(strings.NewReader(string(said)), &heard)}, limits: Limits{Calls: 3}.orDefaults()}
		x.door = newHostDoor(&fakeHost{}, x.limits)
		result, err := x.run(t.Context(), order{})
		if err == nil && result != nil && !json.Valid(result) {
			t.Errorf("the result %q", result)
		}
	})
}

func BenchmarkScript(b *testing.B) {
	took := make([]time.Duration, 0, b.N)
	for b.Loop() {
		begun := time.Now()
		must.Get(runScript("result = call_tool('echo', a = 1)", Limits{Calls: 1}, nil))(b)
		took = append(took, time.Since(begun))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
}

func TestOneCallersScriptsHoldUpNoOthers(t *testing.T) {
	s := NewSandbox(slog.New(slog.DiscardHandler))
	defer s.Close()
	ctx, cancel := context.WithCancel(t.Context())
	var host fakeHost
	var all sync.WaitGroup
	for range 2 * maxProcesses {
		all.Go(func() {
			_, _ = s.Run(ctx, "call_tool('wait')", &Info{Session: "a"}, &host, Limits{Calls: 1, Time: time.Hour}, nil)
		})
	}
	await.True(t, func() bool { return host.running.Load() == maxProcesses/2 })
	if got, err := s.Run(t.Context(), "result = 1", &Info{Session: "b"}, nil, Limits{Time: await.Bound}, nil); err != nil || string(got) != "1" {
		t.Errorf("another caller's script: %s, %v", got, err)
	}
	cancel()
	all.Wait()
	if host.most.Load() > maxProcesses/2 {
		t.Errorf("one caller had %d at a time", host.most.Load())
	}
}
