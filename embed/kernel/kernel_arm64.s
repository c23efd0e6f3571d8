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
