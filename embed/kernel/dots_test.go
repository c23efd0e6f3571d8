package kernel

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// Every kernel gives exactly what the definition gives, with the largest numbers, too, and
// writes no more than it was asked for.
func TestDots(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, s := range sets {
		for _, size := range []struct{ rows, k int }{{0, 64}, {1, 64}, {2, 128}, {3, 384}, {5, 512}, {33, 384}} {
			t.Run(fmt.Sprintf("%s/%dx%d", s.name, size.rows, size.k), func(t *testing.T) {
				codes, query := make([]int8, size.rows*size.k), make([]int16, size.k)
				most := int32(1<<31-1) / int32(127*size.k)
				most = min(most, 1<<15-1)
				for i := range query {
					query[i] = int16(rng.Int32N(2*most+1) - most)
				}
				for i := range codes {
					codes[i] = int8(rng.IntN(255) - 127)
				}
				if size.rows > 2 { // as far from zero as it gets
					for i := range query {
						query[i] = int16(most)
						codes[i], codes[size.k+i] = 127, -127
					}
				}
				sums := make([]int32, size.rows+1)
				sums[size.rows] = 7
				s.multiplyCodes(sums[:size.rows], codes, query)
				for row := range size.rows {
					var want int32
					for i, q := range query {
						want += int32(q) * int32(codes[row*size.k+i])
					}
					if sums[row] != want {
						t.Errorf("row %d is %d, want %d", row, sums[row], want)
					}
				}
				if sums[size.rows] != 7 {
					t.Error("wrote beyond the last row")
				}
			})
		}
	}
}

func BenchmarkDots(b *testing.B) {
	for _, s := range sets {
		b.Run(s.name, func(b *testing.B) {
			const rows, k = 1024, 384
			codes, query, sums := make([]int8, rows*k), make([]int16, k), make([]int32, rows)
			b.SetBytes(rows * k)
			for b.Loop() {
				s.multiplyCodes(sums, codes, query)
			}
		})
	}
}
