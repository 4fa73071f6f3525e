package decisions

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"awarescale.dev/aware/plugins/apis/v1alpha1"
)

// Audience is what a token for the stream is best made for: it is good for nothing
// else.
const Audience = "aware-decisions"

// RefusedError says why a caller gets no decisions.
type RefusedError struct {
	Known bool // who the caller is
	Why   string
}

func (e *RefusedError) Error() string { return e.Why }

// Reviews asks the API server who a caller is and what it may do.
type Reviews struct{ Client kubernetes.Interface }

// May is nil when the token's owner may get the object, a [RefusedError] when it
// may not, and another error when that cannot be found out now.
func (r Reviews) May(ctx context.Context, token string, object types.NamespacedName) error {
	is, err := r.owner(ctx, token)
	if err != nil {
		return err
	}
	extra := make(map[string]authorizationv1.ExtraValue, len(is.Extra))
	for key, value := range is.Extra {
		extra[key] = authorizationv1.ExtraValue(value)
	}
	review, err := r.Client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: is.Username, Groups: is.Groups, UID: is.UID, Extra: extra,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb:      "get",
				Group:     v1alpha1.GroupVersion.Group,
				Version:   v1alpha1.GroupVersion.Version,
				Resource:  "multidimpodautoscalers",
				Namespace: object.Namespace,
				Name:      object.Name,
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("reviewing the access of %s: %w", is.Username, err)
	}
	if !review.Status.Allowed || review.Status.Denied {
		return &RefusedError{Known: true, Why: fmt.Sprintf("%s may not get MultidimPodAutoscaler %s", is.Username, object)}
	}
	return nil
}

// owner is whose a token is: one for our audience, or one for the API server.
func (r Reviews) owner(ctx context.Context, token string) (authenticationv1.UserInfo, error) {
	for _, audiences := range [][]string{{Audience}, nil} {
		review, err := r.Client.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
			Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: audiences},
		}, metav1.CreateOptions{})
		switch {
		case err != nil:
			return authenticationv1.UserInfo{}, fmt.Errorf("reviewing a token: %w", err)
		// An authenticator that knows no audiences leaves them out: its word is for the API server only.
		case review.Status.Authenticated && (audiences == nil || len(review.Status.Audiences) > 0):
			return review.Status.User, nil
		}
	}
	return authenticationv1.UserInfo{}, &RefusedError{Why: "the token is not valid, neither for audience " +
		Audience + " nor for the API server"}
}
