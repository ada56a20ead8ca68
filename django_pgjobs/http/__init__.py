"""Workers, jobs and workflows over HTTP: plain views, for programs in any language.

Mounted by `path("pgjobs/api/", include("django_pgjobs.http.urls"))`. A module of `views/` has
handlers and lists its routes:

    def show_job(request: ApiRequest, *, job: int) -> Reply:
        fields = request.fields()
        name = fields.text("name", max_length=200)
        fields.check()  # raises a 422 with all that is wrong in the body
        [rows] = turn([lambda cursor: send_something(cursor, job, name)])
        if not rows:
            raise not_found("There is no such job.")
        return Reply(200, {"id": str(job)})

    ROUTES = [route("jobs/<pgjobs_id:job>", {"GET": Handler(show_job, "read")})]

`urls.py` imports the module, and `openapi.json` describes the route: its parameters, its fields,
and under `security` the verb. A handler reads and checks the body before it looks for rows, so that
a wrong body is a 422 whatever is in the address. What a handler raises becomes an answer in
`routing.py`: a `Problem` as it is, database trouble a 503, anything else a 500.

The modules. Each imports those before it only, and but for `views` and `urls` those of its own
group and the first:

    each request     problems deadlines pool bodies fields access rates requests pages sessions
                     threads routing asgi tokens
    workers          assignments options members memory waiting looking recording station
                     reporting progress outcomes taking single asking beating
    jobs, workflows  shown owning results destinations posting signatures calling calls trees
                     removing
    routes           views urls
"""
