package kernel

import "golang.org/x/sys/cpu"

func native() []set {
	if !cpu.X86.HasAVX2 || !cpu.X86.HasFMA {
		return nil
	}
	gelu := func(x []float32) {
		if len(x) > 0 {
			geluAVX2(&x[0], len(x))
		}
	}
	exp := func(x []float32, shift float32) {
		if len(x) > 0 {
			expAVX2(&x[0], len(x), shift)
		}
	}
	return []set{{name: "avx2", cols: 16, block: checked(6, 16, mulAdd6x16AVX2), gelu: gelu, exp: exp, dots: dotsAVX2}}
}

// c (6x16) += a (6 x k) * b (k x 16); distances between rows in bytes.
//
//go:noescape
func mulAdd6x16AVX2(k int, a *float32, lda int, b *float32, ldb int, c *float32, ldc int)

// n is a multiple of 8.
//
//go:noescape
func geluAVX2(x *float32, n int)

// n is a multiple of 8.
//
//go:noescape
func expAVX2(x *float32, n int, shift float32)

// The arguments are those of set.dots.
//
//go:noescape
func dotsAVX2(sums *int32, rows int, codes *int8, query *int16, k int)
