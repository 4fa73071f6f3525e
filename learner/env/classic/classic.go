package classic

import (
	"fmt"
	"strings"

	"awarescale.dev/aware/learner/env"
)

// kinds are all environments of this package.
func kinds() []kind {
	return []kind{
		cartPole(), pendulum(), mountainCar(), mountainCarContinuous(), acrobot(),
		identityDiscrete(), identityContinuous(), grid4x4(),
	}
}

// Names are the names that Make accepts.
func Names() []string {
	var names []string
	for _, k := range kinds() {
		names = append(names, k.name)
	}
	return names
}

// Make gives the environment of that name, in which no episode is running yet.
func Make(name string) (env.Env, error) {
	for _, k := range kinds() {
		if k.name == name {
			return newEpisode(k), nil
		}
	}
	return nil, fmt.Errorf("make environment %q: there are %s", name, strings.Join(Names(), ", "))
}
