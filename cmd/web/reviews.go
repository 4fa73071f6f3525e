package web

import (
	"context"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
)

// reviewer is what the API server is asked: whose a token is, and what a user may do.
type reviewer interface {
	token(context.Context, *authenticationv1.TokenReview) (*authenticationv1.TokenReview, error)
	access(context.Context, *authorizationv1.SubjectAccessReview) (*authorizationv1.SubjectAccessReview, error)
}

// reviews asks the API server. It knows the types of its two questions only: a whole clientset
// would bring those of all groups into the node agent.
type reviews struct {
	authentication rest.Interface
	authorization  rest.Interface
}

// newReviews makes the two clients. They share the limit of their questions.
func newReviews(c *rest.Config) (reviews, error) {
	known := runtime.NewScheme()
	known.AddKnownTypes(authenticationv1.SchemeGroupVersion, &authenticationv1.TokenReview{})
	known.AddKnownTypes(authorizationv1.SchemeGroupVersion, &authorizationv1.SubjectAccessReview{})
	metav1.AddToGroupVersion(known, schema.GroupVersion{Version: "v1"})
	codecs := serializer.NewCodecFactory(known).WithoutConversion()
	own := rest.CopyConfig(c)
	own.APIPath, own.NegotiatedSerializer = "/apis", codecs
	own.ContentType = runtime.ContentTypeProtobuf
	own.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	if own.RateLimiter == nil && own.QPS > 0 {
		own.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(own.QPS, own.Burst)
	}
	client := func(v schema.GroupVersion) (rest.Interface, error) {
		one := rest.CopyConfig(own)
		one.GroupVersion = &v
		return rest.RESTClientFor(one)
	}
	var r reviews
	var err error
	if r.authentication, err = client(authenticationv1.SchemeGroupVersion); err != nil {
		return reviews{}, err
	}
	r.authorization, err = client(authorizationv1.SchemeGroupVersion)
	return r, err
}

func (r reviews) token(ctx context.Context, q *authenticationv1.TokenReview) (*authenticationv1.TokenReview, error) {
	a := new(authenticationv1.TokenReview)
	return a, r.authentication.Post().Resource("tokenreviews").Body(q).Do(ctx).Into(a)
}

func (r reviews) access(
	ctx context.Context, q *authorizationv1.SubjectAccessReview,
) (*authorizationv1.SubjectAccessReview, error) {
	a := new(authorizationv1.SubjectAccessReview)
	return a, r.authorization.Post().Resource("subjectaccessreviews").Body(q).Do(ctx).Into(a)
}
