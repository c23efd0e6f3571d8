#include "textflag.h"

// One row of the block: its number of a for all 16 columns.
#define ROW(pointer, s0, s1, s2, s3) \
	VLD1R.P 4(pointer), [V4.S4] \
	VFMLA   V0.S4, V4.S4, s0.S4 \
	VFMLA   V1.S4, V4.S4, s1.S4 \
	VFMLA   V2.S4, V4.S4, s2.S4 \
	VFMLA   V3.S4, V4.S4, s3.S4

// func mulAdd4x16NEON(k int, a *float32, lda int, b *float32, ldb int, c *float32, ldc int)
TEXT ·mulAdd4x16NEON(SB), NOSPLIT, $0-56
	MOVD k+0(FP), R0
	MOVD a+8(FP), R1
	MOVD lda+16(FP), R2
	MOVD b+24(FP), R5
	MOVD ldb+32(FP), R6
	MOVD c+40(FP), R7
	MOVD ldc+48(FP), R8
	ADD  R2, R1, R3
	ADD  R2, R3, R4
	ADD  R2, R4, R9
	ADD  R8, R7, R10
	ADD  R8, R10, R11
	ADD  R8, R11, R12

	// The sums begin with what c has.
	VLD1 (R7), [V16.S4, V17.S4, V18.S4, V19.S4]
	VLD1 (R10), [V20.S4, V21.S4, V22.S4, V23.S4]
	VLD1 (R11), [V24.S4, V25.S4, V26.S4, V27.S4]
	VLD1 (R12), [V28.S4, V29.S4, V30.S4, V31.S4]

loop:
	VLD1 (R5), [V0.S4, V1.S4, V2.S4, V3.S4]
	ADD  R6, R5, R5
	ROW(R1, V16, V17, V18, V19)
	ROW(R3, V20, V21, V22, V23)
	ROW(R4, V24, V25, V26, V27)
	ROW(R9, V28, V29, V30, V31)
	SUBS $1, R0, R0
	BNE  loop

	VST1 [V16.S4, V17.S4, V18.S4, V19.S4], (R7)
	VST1 [V20.S4, V21.S4, V22.S4, V23.S4], (R10)
	VST1 [V24.S4, V25.S4, V26.S4, V27.S4], (R11)
	VST1 [V28.S4, V29.S4, V30.S4, V31.S4], (R12)
	RET

// Two instructions that the assembler does not know: SXTL and SXTL2 widen the lower and the upper
// half of 16 bytes to 16 bits, SMLAL and SMLAL2 add the products of halves of 16-bit numbers.
#define SXTL(n, d) WORD $(0x0F08A400 | n<<5 | d)
#define SXTL2(n, d) WORD $(0x4F08A400 | n<<5 | d)
#define SMLAL(m, n, d) WORD $(0x0E608000 | m<<16 | n<<5 | d)
#define SMLAL2(m, n, d) WORD $(0x4E608000 | m<<16 | n<<5 | d)

// 16 numbers: bytes in register b, numbers of the query in q and q+1.
#define SIXTEEN(b, q, r) \
	SXTL(b, 4)      \
	SXTL2(b, 5)     \
	SMLAL(q, 4, 16)  \
	SMLAL2(q, 4, 17) \
	SMLAL(r, 5, 18)  \
	SMLAL2(r, 5, 19)

// func dotsNEON(sums *int32, rows int, codes *int8, query *int16, k int)
TEXT ·dotsNEON(SB), NOSPLIT, $0-40
	MOVD sums+0(FP), R0
	MOVD rows+8(FP), R1
	MOVD codes+16(FP), R2
	MOVD query+24(FP), R3
	MOVD k+32(FP), R4

row:
	VEOR V16.B16, V16.B16, V16.B16
	VEOR V17.B16, V17.B16, V17.B16
	VEOR V18.B16, V18.B16, V18.B16
	VEOR V19.B16, V19.B16, V19.B16
	MOVD R3, R5
	MOVD R4, R6

numbers:
	VLD1.P 64(R2), [V0.B16, V1.B16, V2.B16, V3.B16]
	VLD1.P 64(R5), [V20.B16, V21.B16, V22.B16, V23.B16]
	VLD1.P 64(R5), [V24.B16, V25.B16, V26.B16, V27.B16]
	SIXTEEN(0, 20, 21)
	SIXTEEN(1, 22, 23)
	SIXTEEN(2, 24, 25)
	SIXTEEN(3, 26, 27)
	SUBS $64, R6, R6
	BNE  numbers

	VADD  V16.S4, V17.S4, V16.S4
	VADD  V18.S4, V19.S4, V18.S4
	VADD  V16.S4, V18.S4, V16.S4
	VADDV V16.S4, V16
	FMOVS F16, (R0)
	ADD   $4, R0, R0
	SUBS  $1, R1, R1
	BNE   row
	RET
