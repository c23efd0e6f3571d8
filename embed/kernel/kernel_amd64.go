package kernel

import "golang.org/x/sys/cpu"

func native() []set {
	var all []set
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
	all = append(all, set{name: "avx2", cols: 16, full: checked(6, 16, mulAdd6x16AVX2), gelu: gelu, exp: exp, dots: dotsAVX2})
	if cpu.X86.HasAVX512F {
		dots := dotsAVX2
		if cpu.X86.HasAVX512BW {
			dots = dotsAVX512
		}
		all = append(all, set{
			name: "avx512", cols: 32, gelu: gelu, exp: exp, dots: dots,
			full: checked(12, 32, mulAdd12x32AVX512),
			rest: checked(6, 32, mulAdd6x32AVX512), // a query has few rows
		})
	}
	return all
}

// c (6x16) += a (6 x k) * b (k x 16); distances between rows in bytes.
//
//go:noescape
func mulAdd6x16AVX2(k int, a *float32, lda int, b *float32, ldb int, c *float32, ldc int)

// c (12x32) += a (12 x k) * b (k x 32); distances between rows in bytes.
//
//go:noescape
func mulAdd12x32AVX512(k int, a *float32, lda int, b *float32, ldb int, c *float32, ldc int)

// c (6x32) += a (6 x k) * b (k x 32); distances between rows in bytes.
//
//go:noescape
func mulAdd6x32AVX512(k int, a *float32, lda int, b *float32, ldb int, c *float32, ldc int)

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

// The arguments are those of set.dots.
//
//go:noescape
func dotsAVX512(sums *int32, rows int, codes *int8, query *int16, k int)
