package hf

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// withTeam runs do with a team of size and checks that its goroutines end.
func withTeam(t *testing.T, size int, do func(team *team)) {
	t.Helper()
	var members sync.WaitGroup
	team := newTeam(size, &members)
	do(team)
	team.end()
	members.Wait() // a member that does not end lets the test run into its time limit
}

func TestEveryPartIsDoneOnce(t *testing.T) {
	for _, size := range []int{1, 2, 3, 8} {
		for _, parts := range []int{0, 1, 2, 7, 1000} {
			t.Run(fmt.Sprintf("%d members, %d parts", size, parts), func(t *testing.T) {
				withTeam(t, size, func(team *team) {
					for range 20 { // steps
						// No locks and no atomics: that each returns is what makes it safe to
						// read, and the race detector sees if it does not.
						times := make([]int, parts)
						team.each(parts, func(part, member int) {
							if member < 0 || member >= size {
								t.Errorf("member %d of %d", member, size)
							}
							times[part]++
						})
						for part, n := range times {
							if n != 1 {
								t.Fatalf("part %d was done %d times", part, n)
							}
						}
					}
				})
			})
		}
	}
}

// A member has memory of its own, which two parts at once would spoil.
func TestAMemberDoesOnePartAtATime(t *testing.T) {
	const size = 4
	var busy [size]atomic.Bool
	sums := make([]int, size) // by member, without a lock
	withTeam(t, size, func(team *team) {
		for step := range 50 {
			team.each(40, func(part, member int) {
				if busy[member].Swap(true) {
					t.Errorf("member %d has two parts", member)
				}
				sums[member] += part
				if part%8 == 0 {
					runtime.Gosched()
				}
				busy[member].Store(false)
			})
			total := 0
			for _, sum := range sums {
				total += sum
			}
			if want := (step + 1) * 40 * 39 / 2; total != want {
				t.Fatalf("after step %d the members have %d, want %d", step, total, want)
			}
		}
	})
}

// A step's parts see all that the step before has done.
func TestStepsComeOneAfterTheOther(t *testing.T) {
	withTeam(t, 3, func(team *team) {
		values := make([]int, 64)
		for step := range 200 {
			next := make([]int, len(values))
			team.each(len(values), func(part, _ int) { next[part] = values[(part+1)%len(values)] + 1 })
			values = next
			for part, v := range values {
				if v != step+1 {
					t.Fatalf("after step %d part %d is %d", step, part, v)
				}
			}
		}
	})
}

// A part that takes long makes the caller give up on the others, and no part is
// lost or done twice then or afterwards.
func TestABusyMachineCostsNoPart(t *testing.T) {
	withTeam(t, 4, func(team *team) {
		held := make(chan struct{})
		hold := sync.OnceFunc(func() { close(held) })
		for step := range 20 {
			times := make([]int, 8)
			team.each(len(times), func(part, member int) {
				switch {
				case step > 0:
				case member == 0:
					<-held // so that another member gets a part
				default:
					hold()
					for !team.ended.Load() { // as if its processor were taken away until the caller gives up
						runtime.Gosched()
					}
				}
				times[part]++
			})
			for part, n := range times {
				if n != 1 {
					t.Fatalf("step %d: part %d was done %d times", step, part, n)
				}
			}
		}
	})
}

func TestATeamOfOneStartsNobody(t *testing.T) {
	var members sync.WaitGroup
	team := newTeam(1, &members)
	members.Wait() // would not return: the team has not ended
	var order []int
	team.each(3, func(part, member int) {
		if member != 0 {
			t.Errorf("member %d", member)
		}
		order = append(order, part)
	})
	if fmt.Sprint(order) != "[0 1 2]" {
		t.Errorf("parts in the order %v", order)
	}
}

func TestATeamWithoutWorkEnds(t *testing.T) {
	for range 20 {
		withTeam(t, 4, func(*team) {})
	}
}

// Many runs at once, each with a team of its own, as many searches have it.
func TestTeamsBesideTeams(t *testing.T) {
	var members, runs sync.WaitGroup
	for range 6 {
		runs.Go(func() {
			team := newTeam(2, &members)
			defer team.end()
			var sum atomic.Int64
			for range 50 {
				team.each(9, func(part, _ int) { sum.Add(int64(part)) })
			}
			if got := sum.Load(); got != 50*36 {
				t.Errorf("the parts add up to %d, want %d", got, 50*36)
			}
		})
	}
	runs.Wait()
	members.Wait()
}
