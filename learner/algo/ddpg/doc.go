// Package ddpg learns continuous actions by deep deterministic policy gradients (Lillicrap et al. 2016), with TD3's three
// remedies (Fujimoto et al. 2018) as options.
//
// # The story
//
// A [Policy] is an actor, which decides, and one or two critics, which say what a decision is worth, each with a target that
// follows it. [Updater.Update] improves a Policy by one batch of experience:
//
//	y      = r + bootstrap * min_i Q'_i(s', mu'(s') + noise)     equation 5; noise and min are TD3's
//	critic : mean of weight * (Q(s, a) - y)^2                    -> Adam
//	actor  : mean of -Q(s, mu(s)), the critic's weights frozen   -> Adam, every Delay-th update
//	targets: follow by Tau                                       after the actor's
//
// An [Agent] joins a Policy with exploration noise and a replay buffer: [Agent.Explore], [Agent.Learn], [Agent.Act].
//
// Actions are in [-1, 1] in every network and in the buffer; the Agent stretches them to the environment's bounds.
//
// One Updater (a pair of gorgonia graphs) serves any number of Policies of its shape, one at a time: their vectors are copied
// in and out. Workers have one each, agents need none.
//
// # Departures from Lillicrap et al. 2016
//
//  1. Actions enter the critic's first layer beside the state, not its second one: as in Spinning Up, CleanRL, TD3.
//  2. No batch normalisation, no weight decay on the critic by default (the same references).
//  3. Tau 0.005 instead of 0.001; Gaussian noise by default, Ornstein-Uhlenbeck as an option.
//  4. The first Warmup steps are uniformly random (Spinning Up).
//
// # What the released code of FIRM gets wrong, and tests here would catch
//
// Its targets are not initialised from the online networks; its critic loss broadcasts [B,1] against [B]; its actor has 15
// discrete actions.
package ddpg
