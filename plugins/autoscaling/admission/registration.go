package admission

import (
	"bytes"
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const (
	// ConfigurationName is our MutatingWebhookConfiguration. The manifests make it. Without
	// it new pods start with their template's size.
	ConfigurationName = "aware-autoscaler"
	// WebhookName is the webhook in it.
	WebhookName = "pods.awarescale.dev"
)

// Registration tells the API server which certificate authority has signed the webhook's
// certificate. It changes nothing else, and it makes and deletes nothing: what is installed
// decides who is asked about which pods.
type Registration struct{ Client kubernetes.Interface }

// Ensure writes the authority into the configuration when it is not there. registered is
// false when there is no configuration.
func (r Registration) Ensure(ctx context.Context, ca []byte) (registered bool, err error) {
	all := r.Client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	have, err := all.Get(ctx, ConfigurationName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading MutatingWebhookConfiguration %s: %w", ConfigurationName, err)
	}
	stale := false
	for i := range have.Webhooks {
		one := &have.Webhooks[i]
		if one.Name == WebhookName {
			registered = true
			stale = !bytes.Equal(one.ClientConfig.CABundle, ca)
			one.ClientConfig.CABundle = ca
		}
	}
	if !stale {
		return registered, nil
	}
	if _, err := all.Update(ctx, have, metav1.UpdateOptions{}); err != nil {
		return registered, fmt.Errorf("writing the certificate authority into MutatingWebhookConfiguration %s: %w",
			ConfigurationName, err)
	}
	return registered, nil
}
