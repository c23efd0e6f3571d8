//go:build amd64 || arm64

package kernel

// checked gives an assembly kernel the bounds checks of Go.
func checked(rows, cols int, mulAdd func(k int, a *float32, lda int, b *float32, ldb int, c *float32, ldc int)) block {
	return block{rows, func(k int, a []float32, lda int, b []float32, ldb int, c []float32, ldc int) {
		if k <= 0 {
			return
		}
		_ = a[(rows-1)*lda+k-1]
		_ = b[(k-1)*ldb+cols-1]
		_ = c[(rows-1)*ldc+cols-1]
		mulAdd(k, &a[0], 4*lda, &b[0], 4*ldb, &c[0], 4*ldc)
	}}
}
