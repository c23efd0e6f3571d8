package kernel

import (
	"fmt"
	"unsafe"
)

// Codes divides the length of a row of codes.
const Codes = 64

// Dots stores in sums the inner products of query with rows of codes, which follow each other and are as long as
// query. The length is a multiple of Codes. The caller ensures that no sum overflows.
func Dots(sums []int32, codes []int8, query []int16) { best.multiplyCodes(sums, codes, query) }

func (s *set) multiplyCodes(sums []int32, codes []int8, query []int16) {
	k := len(query)
	if k == 0 || k%Codes != 0 || len(codes) < k*len(sums) {
		panic(fmt.Sprintf("kernel: %d rows of %d codes, of which there are %d", len(sums), k, len(codes)))
	}
	if len(sums) > 0 {
		s.dots(&sums[0], len(sums), &codes[0], &query[0], k)
	}
}

func dotsGo(sums *int32, rows int, codes *int8, query *int16, k int) {
	q := unsafe.Slice(query, k)
	all := unsafe.Slice(codes, rows*k)
	for i, out := 0, unsafe.Slice(sums, rows); i < rows; i++ {
		var a, b int32
		row := all[i*k : i*k+k : i*k+k]
		for j := 0; j+1 < len(q) && j+1 < len(row); j += 2 {
			a += int32(row[j]) * int32(q[j])
			b += int32(row[j+1]) * int32(q[j+1])
		}
		out[i] = a + b
	}
}
