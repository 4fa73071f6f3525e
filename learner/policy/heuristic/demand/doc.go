// Package demand sets a CPU limit to the demand that is expected, and a margin for its scatter.
//
// A rule that follows usage sees what the limit has let through. This one estimates the demand: the usage, and
// the work that was held back while the container was throttled. From the same figures, of one container and a
// second each, it estimates how large the work of one request is, and how fast the mean moves. So it
// knows how much the demand of a CFS period scatters, and the margin is a number of such deviations:
//
//	limit = 1.002 d + z (hypot(s, e) + 0.02 d) + 0.3 B + z/(z + 0.03) t max(s, t d/4),   z = exp(margin + level)
//
// with, in cores: d the expected demand (y + g where it rises), s the scatter of the demand in a period of 100 ms, e the
// uncertainty of d, B the work that was held back and not done yet, and t the share of throttled periods.
//
// and no less than h min(1, exp(0.15 level)), with h the spike that is held, if there is one.
//
// The margin is the container's own. It is learned (how much tail latency a core buys there), or zero. The level is one number
// for all containers of an application. [Budget] moves it so that the SLO's error budget is
// used up, and not more.
//
// # The estimates
//
// Of each second the rule gets the usage u and the share of throttled periods t. The work that is held back is
// zero in a second without throttling, and otherwise B = t max(0, B + d - u). The demand of the second is
// y = u + B - (B of the second before).
//
// d is a local level that y scatters around: a Kalman filter, d += K (y - d). Its two variances follow
// from the differences D of consecutive demands. The scatter of y makes D and the D before it
// correlated, by minus its variance; a level that moves does not. So r, the variance of y, is w d with
// w = mean(-D D before)/mean(y) over ten minutes, the work of a request in CPU seconds (for a Poisson
// process it is exactly that). What D scatters beyond 2 r is the movement of the level, q = mean(D^2)
// - 2 r over two minutes. The filter's own variance of d, before it sees y, is p = (q + sqrt(q^2 + 4 q
// r))/2, K = p/(p + r) but at least 0.2, and e = sqrt(p). In a period of a tenth of a second the same
// process scatters by s = sqrt(10 w d).
//
// A demand that never scattered has no s, and one that then grows beyond its limit shows nothing but that every
// period is throttled. So a throttled second counts as a fourth of the demand at least, by the square of t.
//
// # Crowds
//
// A filter is behind a demand that grows in each second. Where y grew twice in a row by more than a tenth of d and three
// deviations of D, the next second is expected to have y + g, with g the smaller one of the two steps: work that was held back
// and is done later looks like steps that grow.
//
// # Spikes
//
// A spike of a second is over before a filter knows of it, and what reacts is late by design. So h is what was needed last
// time: when at least 30 % of a window's requests were late ([Budget.LateWindows]), then for an hour the limit is no lower than
// the highest demand y of the last five minutes, as long as that is 1.3 times the mean. A spike that does not come again in five
// minutes is forgotten. What a limit cuts off is not seen: h is right where the limit surges in the spike ([Config.Fast], or a
// node's lane), and otherwise less than what is needed.
//
// A surge waits until chance does not explain the row of throttled periods. Low limits throttle often, and each throttled period
// leaves work for the next. So the rule counts how often another one follows: with the share p of the last thousand, k in a row
// have the probability p^(k-1), and below 0.03 the limit surges. Where requests are late it surges from the third on, and where
// the demand rose in the last second, from the second on.
//
// Where no window is late nothing is held, however spiky the demand is: an SLO that has time to react pays nothing.
//
// # What it does not do
//
// It sets no replicas and no memory. It needs no request rate. What reacts within a second is [Config.Fast], and on a node the
// fast lane, which is as patient as [Budget.Patience] says.
package demand
