package kernel

// native is NEON, which every arm64 has. The two functions stay in Go there.
func native() []set {
	return []set{{name: "neon", cols: 16, block: checked(4, 16, mulAdd4x16NEON), gelu: geluGo, exp: expGo, dots: dotsNEON}}
}

// c (4x16) += a (4 x k) * b (k x 16); distances between rows in bytes.
//
//go:noescape
func mulAdd4x16NEON(k int, a *float32, lda int, b *float32, ldb int, c *float32, ldc int)

// The arguments are those of set.dots.
//
//go:noescape
func dotsNEON(sums *int32, rows int, codes *int8, query *int16, k int)
