package main

import (
	"context"
	"time"

	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/plugins/fleet"
	"awarescale.dev/aware/plugins/scheduling/headroom"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
)

// askEvery is how often a scheduler without the autoscaler asks it what pods can use.
const askEvery = time.Second

// reports is where the scheduler's plugin gets the agents' reports from: the fleet of
// this process, or a copy of the autoscaler's. It is set before scheduling starts.
type reports struct{ headroom.Uppers }

// mirror is a copy of the autoscaler's reports.
func (b *services) mirror(ctx context.Context) *fleet.Mirror {
	log := klog.FromContext(ctx).WithName("headroom")
	return &fleet.Mirror{
		Caller: b.caller(),
		Every:  askEvery,
		MaxAge: headroom.MaxReportAge,
		Now:    time.Now,
		Log: func(err error, message string, kv ...any) {
			if err != nil {
				log.Error(err, message, kv...)
				return
			}
			log.Info(message, kv...)
		},
	}
}

// caller makes requests to the autoscaler's link. The authority that signs the link's certificate is in a config map, and is
// read again for each connection.
func (b *services) caller() *fleet.Caller {
	s := b.settings
	return &fleet.Caller{
		URL: s.central, Name: s.linkName, Token: s.tokenFile,
		CA: func(ctx context.Context) ([]byte, error) {
			m, err := b.client.CoreV1().ConfigMaps(s.namespace).Get(ctx, api.CAConfigMap, metav1.GetOptions{})
			if err != nil {
				return nil, err
			}
			return []byte(m.Data[api.CAKey]), nil
		},
	}
}
