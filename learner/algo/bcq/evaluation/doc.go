// Package evaluation compares batch-constrained learning with two other
// learners. [Evaluate] records data of an expert and of random actions. It lets
// bcq, clone and ddpg learn from it, by the same batches and without
// interaction, and evaluates all on the same episodes of Pendulum-v1. BCQ must
// be better than clone, and ddpg much worse: its critic extrapolates.
//
// # The data
//
// It is 30,000 steps. While the pendulum hangs below the horizontal, four of
// five actions are random, a fifth of all; above it all are the expert's. A
// clone takes the mean of both below and swings up late. DDPG has seen all
// actions below, but only one above: it takes others there, to which its critic
// gives a high value, and falls. BCQ takes the best below and the expert's
// above.
//
// Mean returns of 100 episodes, 10,000 updates, gemm's AVX-512 kernel (the
// expert's own is -161; one to two minutes a seed):
//
//	seed   data    bcq   clone    ddpg
//	1      -405   -189    -462   -1596
//	2      -426   -190    -456    -803
//	3      -399   -189    -421   -1588
//
// # What other mixes give, and why this one
//
// With actions of one number, only some mixes show the extrapolation error.
// These are single runs of 5,000 to 15,000 updates, evaluated on 20 to 50
// episodes each:
//
//	random actions                             bcq           clone          ddpg
//	below the horizontal, 0.7 of steps         -142          -270 to -315   -1040 to -1310
//	below the horizontal, 0.85 of steps        -155          -460 to -630   -570 to -1260
//	three of ten whole episodes                -166 to -470  -680 to -910   -125 to -170     it has seen all actions everywhere
//	never: the expert alone                    -129          -129           -1050 to -1310   cloning is the best that can be done
//	a fixed random policy, half of episodes    -340 to -970  -840 to -1060  -850 to -1580    the expert's is too rare below
//	a fixed one, half of the steps of half of
//	  the episodes                             -140 to -860  -420 to -880   -140 to -1160    depends on which policy was drawn
//	six of these in turns                      -137          -850           -136 to -650     they are random again
//
// So the claim is not that BCQ wins on any data. Where random actions tried
// everything, DDPG needs no constraint and learns faster. Where a bad policy
// took seven in ten of the actions in a state, BCQ does not find the others
// (package bcq, "What it cannot do"). A discount of 0.95 is for speed: with
// 0.99, on three and five of ten whole episodes, BCQ was at -680 to -970 after
// 6,000 to 9,000 updates.
package evaluation
