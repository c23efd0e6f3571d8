package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

func random(rng *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = rng.Float32()*2 - 1
	}
	return x
}

// Every kernel gives what the definition of a product gives, whatever the
// sizes, and touches nothing outside its block of rows.
func TestMulAdd(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, s := range sets {
		for _, size := range []struct{ rows, k, columns int }{
			{1, 1, 1}, {2, 3, 4}, {6, 16, 16}, {7, 384, 33}, {12, 5, 32}, {13, 385, 96}, {70, 1536, 64}, {25, 771, 40},
		} {
			t.Run(fmt.Sprintf("%s/%dx%dx%d", s.name, size.rows, size.k, size.columns), func(t *testing.T) {
				rows, columns := RoundUp(size.rows, MaxRows), RoundUp(size.columns, Align)
				lda, ldc := size.k+3, columns+5
				a := random(rng, rows*lda)
				c := random(rng, rows*ldc)
				before := append([]float32(nil), c...)
				b := random(rng, size.k*columns)
				p := newPanels(&s, size.k, size.columns)
				for j := range columns {
					column := make([]float32, size.k)
					for i := range column {
						column[i] = b[i*columns+j]
					}
					p.Set(j, column)
				}
				p.MulAdd(c, ldc, a, lda, size.rows, 0, columns)
				plain := append([]float32(nil), before...)
				s.multiply(plain, ldc, a, lda, b, columns, size.rows, size.k, columns)
				for i := range rows {
					for j := range ldc {
						want := float64(before[i*ldc+j])
						if j < columns {
							for l := range size.k {
								want += float64(a[i*lda+l]) * float64(b[l*columns+j])
							}
						}
						if i >= size.rows && j < columns {
							continue // rows that fill up a block
						}
						for way, got := range map[string]float32{"panels": c[i*ldc+j], "plain": plain[i*ldc+j]} {
							if math.Abs(float64(got)-want) > 1e-5*math.Sqrt(float64(size.k))+1e-6 {
								t.Fatalf("%s: row %d column %d: %v, want %v", way, i, j, got, want)
							}
						}
					}
				}
			})
		}
	}
}

// A range of columns is computed alone: that is how work is shared out.
func TestMulAddRange(t *testing.T) {
	for _, s := range sets {
		p := newPanels(&s, 2, 96)
		for j := range 96 {
			p.Set(j, []float32{float32(j), 1})
		}
		a := make([]float32, MaxRows*2)
		a[0], a[1] = 1, 0.5
		c := make([]float32, MaxRows*96)
		p.MulAdd(c, 96, a, 2, 1, 32, 64)
		for j := range 96 {
			var want float32
			if j >= 32 && j < 64 {
				want = float32(j) + 0.5
			}
			if c[j] != want {
				t.Errorf("%s: column %d is %v, want %v", s.name, j, c[j], want)
			}
		}
	}
}

func TestGrowKeepsColumns(t *testing.T) {
	for _, s := range sets {
		p := newPanels(&s, 1, 1)
		p.Set(0, []float32{7})
		p.Grow(1000)
		p.Set(999, []float32{9})
		c := make([]float32, MaxRows*p.Columns())
		p.MulAdd(c, p.Columns(), []float32{1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 1, 1, 0, p.Columns())
		if c[0] != 7 || c[1] != 0 || c[999] != 9 {
			t.Errorf("%s: columns 0, 1, 999 are %v, %v, %v; want 7, 0, 9", s.name, c[0], c[1], c[999])
		}
	}
}

func TestGELU(t *testing.T) {
	var in []float32
	for v := float32(-12); v <= 12; v += 1.0 / 64 {
		in = append(in, v)
	}
	in = append(in, make([]float32, RoundUp(len(in), 8)-len(in))...)
	for _, s := range sets {
		got := append([]float32(nil), in...)
		s.gelu(got)
		for i, v := range in {
			want := 0.5 * float64(v) * (1 + math.Erf(float64(v)/math.Sqrt2))
			if math.Abs(float64(got[i])-want) > 2e-7*(1+math.Abs(float64(v))) {
				t.Errorf("%s: gelu(%v) = %v, want %v", s.name, v, got[i], want)
			}
		}
	}
}

func TestExp(t *testing.T) {
	var in []float32
	for v := float32(-100); v <= 0; v += 1.0 / 16 {
		in = append(in, v+3)
	}
	in = append(in, make([]float32, RoundUp(len(in), 8)-len(in))...)
	for _, s := range sets {
		got := append([]float32(nil), in...)
		s.exp(got, 3)
		for i, v := range in {
			want := math.Exp(float64(v - 3))
			if math.Abs(float64(got[i])-want) > 3e-7*want+1e-37 {
				t.Errorf("%s: exp(%v) = %v, want %v", s.name, v-3, got[i], want)
			}
		}
	}
}

func TestSoftmax(t *testing.T) {
	x := []float32{1, 2, 3, 1000, -1000, 5, 5, 5}
	Softmax(x, 3)
	want := []float64{0.09003057, 0.24472847, 0.66524096, 0, 0, 0, 0, 0}
	for i, w := range want {
		if math.Abs(float64(x[i])-w) > 1e-6 {
			t.Errorf("value %d is %v, want %v", i, x[i], w)
		}
	}
}

func BenchmarkMulAdd(b *testing.B) {
	for _, s := range sets {
		for _, rows := range []int{12, 132} {
			b.Run(fmt.Sprintf("%s/rows=%d", s.name, rows), func(b *testing.B) {
				const k, n = 384, 1536
				rng := rand.New(rand.NewPCG(1, 2))
				p := newPanels(&s, k, n)
				for j := range n {
					p.Set(j, random(rng, k))
				}
				a, c := random(rng, rows*k), make([]float32, rows*n)
				for b.Loop() {
					p.MulAdd(c, n, a, k, rows, 0, n)
				}
				b.ReportMetric(2*float64(rows)*k*n*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
			})
		}
	}
}
