// Package ddpg learns continuous actions by deep deterministic policy gradients
// (Lillicrap et al. 2016). The three improvements of TD3 (Fujimoto et al. 2018)
// are options.
//
// # The story
//
// A [Policy] is an actor, which decides, and one or two critics, which give the
// value of a decision. Each has a target network. [Updater.Update] improves a
// Policy by one batch of experience:
//
//	y      = r + bootstrap * min_i Q'_i(s', mu'(s') + noise)     equation 5; noise and min are TD3's
//	critic : mean of weight * (Q(s, a) - y)^2                    -> Adam
//	actor  : mean of -Q(s, mu(s)), the critic's weights frozen   -> Adam, every Delay-th update
//	targets: soft update by Tau                                  after the actor's
//
// An [Agent] joins a Policy with exploration noise and a replay buffer:
// [Agent.Explore], [Agent.Learn], [Agent.GreedyAction]; [Agent.Watch] fills the
// buffer without learning, and [Agent.GoBack] keeps it. The buffer holds the
// action that took force, which may differ from the proposed one. Steps whose
// reward is not known are not stored.
//
// With Config.Imitation the actor's loss also has the distance to the actions of the data (TD3+BC), for data that another
// policy has made: away from its actions the critics' values are made up. With Config.Inward it has the squares of the outputs
// before tanh, as the remedy for actors that stay at a bound.
//
// Actions are in [-1, 1] in every network and in the buffer; the Agent scales
// them to the environment's bounds.
//
// One Updater (a pair of gorgonia graphs) serves any number of Policies of its
// shape, one at a time: their vectors are copied in and out. [NewWith] makes
// Agents that share one.
//
// # Departures from Lillicrap et al. 2016
//
//  1. Actions enter the critic's first layer together with the state, not
//     its second one: as in Spinning Up, CleanRL, TD3.
//  2. No batch normalisation, and no weight decay on the critic by default
//     (the same references).
//  3. Tau is 0.005 instead of 0.001. Noise is Gaussian by default;
//     Ornstein-Uhlenbeck noise is an option.
//  4. The first Warmup steps are uniformly random (Spinning Up).
//
// # Errors in FIRM's released code that tests here would find
//
// Its targets are not initialised from the online networks. Its critic loss
// broadcasts [B,1] against [B]. Its actor has 15 discrete actions.
package ddpg
