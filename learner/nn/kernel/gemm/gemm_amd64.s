#include "textflag.h"

// One kernel is one loop over the depth: load a row of B's panel (two vectors), and for each row of the tile broadcast
// the value of A's panel and multiply-add it into that row's two registers. At the end the tile is added to C.
//
// AX: A's panel, BX: B's panel, CX: depth, DX: C, SI: bytes from one row of C to the next.

#define BEGIN(size) \
	MOVQ k+0(FP), CX \
	MOVQ a+8(FP), AX \
	MOVQ b+16(FP), BX \
	MOVQ c+24(FP), DX \
	MOVQ ldc+32(FP), SI \
	SHLQ $size, SI

// AVX2, 6 rows: Y0 to Y11 are the tile, Y12 and Y13 a row of B, Y14 and Y15 values of A.

#define CLEAR256 \
	VXORPD Y0, Y0, Y0 \
	VXORPD Y1, Y1, Y1 \
	VXORPD Y2, Y2, Y2 \
	VXORPD Y3, Y3, Y3 \
	VXORPD Y4, Y4, Y4 \
	VXORPD Y5, Y5, Y5 \
	VXORPD Y6, Y6, Y6 \
	VXORPD Y7, Y7, Y7 \
	VXORPD Y8, Y8, Y8 \
	VXORPD Y9, Y9, Y9 \
	VXORPD Y10, Y10, Y10 \
	VXORPD Y11, Y11, Y11

#define ROWPD256(offset, value, low, high) \
	VBROADCASTSD offset(AX), value \
	VFMADD231PD Y12, value, low \
	VFMADD231PD Y13, value, high

#define ADDPD256(low, high) \
	VADDPD (DX), low, low \
	VADDPD 32(DX), high, high \
	VMOVUPD low, (DX) \
	VMOVUPD high, 32(DX) \
	ADDQ SI, DX

// func tile6x8(k int, a, b, c *float64, ldc int)
TEXT ·tile6x8(SB), NOSPLIT, $0-40
	BEGIN(3)
	CLEAR256
loop6x8:
	VMOVUPD (BX), Y12
	VMOVUPD 32(BX), Y13
	ROWPD256(0, Y14, Y0, Y1)
	ROWPD256(8, Y15, Y2, Y3)
	ROWPD256(16, Y14, Y4, Y5)
	ROWPD256(24, Y15, Y6, Y7)
	ROWPD256(32, Y14, Y8, Y9)
	ROWPD256(40, Y15, Y10, Y11)
	ADDQ $48, AX
	ADDQ $64, BX
	DECQ CX
	JNZ loop6x8
	ADDPD256(Y0, Y1)
	ADDPD256(Y2, Y3)
	ADDPD256(Y4, Y5)
	ADDPD256(Y6, Y7)
	ADDPD256(Y8, Y9)
	ADDPD256(Y10, Y11)
	VZEROUPPER
	RET

#define ROWPS256(offset, value, low, high) \
	VBROADCASTSS offset(AX), value \
	VFMADD231PS Y12, value, low \
	VFMADD231PS Y13, value, high

#define ADDPS256(low, high) \
	VADDPS (DX), low, low \
	VADDPS 32(DX), high, high \
	VMOVUPS low, (DX) \
	VMOVUPS high, 32(DX) \
	ADDQ SI, DX

// func tile6x16(k int, a, b, c *float32, ldc int)
TEXT ·tile6x16(SB), NOSPLIT, $0-40
	BEGIN(2)
	CLEAR256
loop6x16:
	VMOVUPS (BX), Y12
	VMOVUPS 32(BX), Y13
	ROWPS256(0, Y14, Y0, Y1)
	ROWPS256(4, Y15, Y2, Y3)
	ROWPS256(8, Y14, Y4, Y5)
	ROWPS256(12, Y15, Y6, Y7)
	ROWPS256(16, Y14, Y8, Y9)
	ROWPS256(20, Y15, Y10, Y11)
	ADDQ $24, AX
	ADDQ $64, BX
	DECQ CX
	JNZ loop6x16
	ADDPS256(Y0, Y1)
	ADDPS256(Y2, Y3)
	ADDPS256(Y4, Y5)
	ADDPS256(Y6, Y7)
	ADDPS256(Y8, Y9)
	ADDPS256(Y10, Y11)
	VZEROUPPER
	RET

// AVX-512, 8 rows: Z0 to Z15 are the tile, Z16 and Z17 a row of B, Z18 to Z21 values of A.

#define CLEAR512 \
	VXORPD Y0, Y0, Y0 \
	VXORPD Y1, Y1, Y1 \
	VXORPD Y2, Y2, Y2 \
	VXORPD Y3, Y3, Y3 \
	VXORPD Y4, Y4, Y4 \
	VXORPD Y5, Y5, Y5 \
	VXORPD Y6, Y6, Y6 \
	VXORPD Y7, Y7, Y7 \
	VXORPD Y8, Y8, Y8 \
	VXORPD Y9, Y9, Y9 \
	VXORPD Y10, Y10, Y10 \
	VXORPD Y11, Y11, Y11 \
	VXORPD Y12, Y12, Y12 \
	VXORPD Y13, Y13, Y13 \
	VXORPD Y14, Y14, Y14 \
	VXORPD Y15, Y15, Y15

#define ROWPD512(offset, value, low, high) \
	VBROADCASTSD offset(AX), value \
	VFMADD231PD Z16, value, low \
	VFMADD231PD Z17, value, high

#define ADDPD512(low, high) \
	VADDPD (DX), low, low \
	VADDPD 64(DX), high, high \
	VMOVUPD low, (DX) \
	VMOVUPD high, 64(DX) \
	ADDQ SI, DX

// func tile8x16(k int, a, b, c *float64, ldc int)
TEXT ·tile8x16(SB), NOSPLIT, $0-40
	BEGIN(3)
	CLEAR512
loop8x16:
	VMOVUPD (BX), Z16
	VMOVUPD 64(BX), Z17
	ROWPD512(0, Z18, Z0, Z1)
	ROWPD512(8, Z19, Z2, Z3)
	ROWPD512(16, Z20, Z4, Z5)
	ROWPD512(24, Z21, Z6, Z7)
	ROWPD512(32, Z18, Z8, Z9)
	ROWPD512(40, Z19, Z10, Z11)
	ROWPD512(48, Z20, Z12, Z13)
	ROWPD512(56, Z21, Z14, Z15)
	ADDQ $64, AX
	ADDQ $128, BX
	DECQ CX
	JNZ loop8x16
	ADDPD512(Z0, Z1)
	ADDPD512(Z2, Z3)
	ADDPD512(Z4, Z5)
	ADDPD512(Z6, Z7)
	ADDPD512(Z8, Z9)
	ADDPD512(Z10, Z11)
	ADDPD512(Z12, Z13)
	ADDPD512(Z14, Z15)
	VZEROUPPER
	RET

#define ROWPS512(offset, value, low, high) \
	VBROADCASTSS offset(AX), value \
	VFMADD231PS Z16, value, low \
	VFMADD231PS Z17, value, high

#define ADDPS512(low, high) \
	VADDPS (DX), low, low \
	VADDPS 64(DX), high, high \
	VMOVUPS low, (DX) \
	VMOVUPS high, 64(DX) \
	ADDQ SI, DX

// func tile8x32(k int, a, b, c *float32, ldc int)
TEXT ·tile8x32(SB), NOSPLIT, $0-40
	BEGIN(2)
	CLEAR512
loop8x32:
	VMOVUPS (BX), Z16
	VMOVUPS 64(BX), Z17
	ROWPS512(0, Z18, Z0, Z1)
	ROWPS512(4, Z19, Z2, Z3)
	ROWPS512(8, Z20, Z4, Z5)
	ROWPS512(12, Z21, Z6, Z7)
	ROWPS512(16, Z18, Z8, Z9)
	ROWPS512(20, Z19, Z10, Z11)
	ROWPS512(24, Z20, Z12, Z13)
	ROWPS512(28, Z21, Z14, Z15)
	ADDQ $32, AX
	ADDQ $128, BX
	DECQ CX
	JNZ loop8x32
	ADDPS512(Z0, Z1)
	ADDPS512(Z2, Z3)
	ADDPS512(Z4, Z5)
	ADDPS512(Z6, Z7)
	ADDPS512(Z8, Z9)
	ADDPS512(Z10, Z11)
	ADDPS512(Z12, Z13)
	ADDPS512(Z14, Z15)
	VZEROUPPER
	RET
